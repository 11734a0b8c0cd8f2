"""A notebook: one interpreter per session, which keeps its variables from call to call."""

import asyncio

from hotcell_client import call, connect


async def main():
    async with connect() as client:

        async def cell(code):
            return await call(client, "execute_code", code=code, session="notebook", stateful=True)

        await cell("import statistics\nvalues = [3, 1, 4, 1, 5, 9, 2, 6]")
        median = await cell("statistics.median(values)")
        print("median:", median["result"]["text"])
        # What fails keeps the variables, too.
        failed = await cell("values[100]")
        print("error:", failed["stderr"].strip().splitlines()[-1])
        await cell("open('values.txt', 'w').write('\\n'.join(map(str, sorted(values))))")
        files = await call(client, "sandbox_list_files", session="notebook")
        names = [entry["path"].rsplit("/", 1)[-1] for entry in files["entries"]]
        print("files:", ", ".join(name for name in names if not name.startswith(".")))


asyncio.run(main())
