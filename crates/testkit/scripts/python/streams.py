import os, sys
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.name, stream.mode, stream.encoding, stream.errors, stream.isatty(), stream.fileno(),
          stream.line_buffering, stream.write_through, stream.newlines, type(stream.buffer).__name__)
    print(stream.buffer.raw, stream.seekable(), stream.readable(), stream.writable())
print(sys.__stdout__ is sys.stdout, os.isatty(0), sys.stdin.closed)
