import threading
results = []
lock = threading.Lock()
def work(number):
    with lock:
        results.append(number * number)
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(results), threading.current_thread() is threading.main_thread(), threading.active_count())
print(threading.main_thread().name, threading.main_thread().daemon, threading.get_native_id() == __import__("os").getpid())
