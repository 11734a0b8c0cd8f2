import os, tempfile
with tempfile.TemporaryDirectory() as directory:
    print(os.path.dirname(directory), os.path.isdir(directory))
print(os.path.exists(directory), tempfile.gettempdir())
left = tempfile.NamedTemporaryFile()
print(os.path.exists(left.name))
