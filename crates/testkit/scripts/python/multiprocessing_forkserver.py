import multiprocessing, os

def square(number):
    return number * number, os.getcwd(), multiprocessing.current_process().name != "MainProcess"

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    with context.Pool(2) as pool:
        print(pool.map(square, range(4)))
    queue = context.Queue()
    process = context.Process(target=queue.put, args=("from a child",))
    process.start()
    print(queue.get())
    process.join()
    print(process.exitcode)
