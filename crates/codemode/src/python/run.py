import sys

# In a container of one script nobody imports what is compiled once more.
written, sys.dont_write_bytecode = sys.dont_write_bytecode, sys.dont_write_bytecode or "once" in sys.argv[1:]
import hotcell_run

sys.dont_write_bytecode = written
hotcell_run.main()
