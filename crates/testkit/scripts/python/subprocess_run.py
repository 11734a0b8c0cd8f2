import subprocess, sys
done = subprocess.run(["sh", "-c", "cat; echo err >&2; exit 3"], input="given", capture_output=True, text=True)
print(done)
print(subprocess.check_output([sys.executable, "-c", "import sys; print(sys.argv, sys.flags.isolated)", "a"], text=True))
subprocess.run(["sh", "-c", "echo straight through; echo $0 $PWD"])
