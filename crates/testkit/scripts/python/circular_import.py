open("one.py", "w").write("import two\nprint('one', two.x)\n")
open("two.py", "w").write("import one\nx = 1\nprint('two', one)\n")
import one
