# stdin: Ada\n36\n
name = input("Name? ")
age = int(input())
print(f"{name} is {age}")
print(input("more? "))
