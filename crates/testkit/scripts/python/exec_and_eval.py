exec(compile("print(__name__, eval('1 + 1'))", "made up", "exec"))
exec("raise ValueError(1)")
