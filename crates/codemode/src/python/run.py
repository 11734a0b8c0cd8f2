import hotcell_run

hotcell_run.main()
