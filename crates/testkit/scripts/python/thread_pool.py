from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(lambda number: number * 2, range(10))))
pool = ThreadPoolExecutor(1)
pool.submit(print, "never shut down")
