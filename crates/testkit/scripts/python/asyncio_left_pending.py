import asyncio
async def main():
    asyncio.get_running_loop().create_task(asyncio.sleep(60))
    print("leaving")
asyncio.run(main())
