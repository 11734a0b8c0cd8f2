import os
print(sorted(os.listdir("/proc/self/fd"))[:3], os.open("/dev/null", os.O_RDONLY), os.dup(0))
print([os.get_inheritable(number) for number in range(3)])
