"""What was found, for people and for other programs. Pure: records come in as plain data, texts go out.

`findings.of_record` reads a record; every format has a module with `write(found) -> str`. Nothing here opens a file.
"""
