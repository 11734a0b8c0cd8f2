import asyncio
async def work(number):
    await asyncio.sleep(0.001 * number)
    return number
async def main():
    process = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
    print(await asyncio.gather(*map(work, range(5))), await process.communicate())
    raise ValueError("in a task")
asyncio.run(main())
