import subprocess
try:
    subprocess.run(["/no/such/program"])
except FileNotFoundError as error:
    print(error)
subprocess.run(["false"], check=True)
