import threading, time
def work():
    time.sleep(0.5)
    print("after main")
threading.Thread(target=work).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("main ends")
