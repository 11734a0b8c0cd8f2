# A keeper as machine code. The zygote maps it and calls it as a function:
#
#   long fork_keeper(int told, int (*fork)(void))
#
# It returns twice, as `fork` does: the keeper's id (or a negative number) in the zygote, 0 in the
# spare. The keeper itself never returns: it reaps what it has below it, tells the agent of the spare
# (the records of process/record.rs), and exits when nothing is left. It touches its stack and nothing
# else, because each page that it wrote to would be a copy of the interpreter's.
#
# It depends on no address, so it can be copied anywhere. rbx: told, rbp: the spare, r12: fork.

    .pushsection .rodata.hotcell_keeper, "a"
    .globl hotcell_keeper_begin, hotcell_keeper_end
hotcell_keeper_begin:
    push rbx
    push rbp
    push r12
    push r13
    sub rsp, 216
    mov ebx, edi
    mov r12, rsi

    # clone(CLONE_PARENT | SIGCHLD): a child of the agent. The C library's fork could not do that.
    mov edi, 0x8011
    xor esi, esi
    xor edx, edx
    xor r10d, r10d
    xor r8d, r8d
    mov eax, 56
    syscall
    test rax, rax
    jnz 90f

    # prctl(PR_SET_CHILD_SUBREAPER, 1)
    mov edi, 36
    mov esi, 1
    xor edx, edx
    xor r10d, r10d
    xor r8d, r8d
    mov eax, 157
    syscall
    test rax, rax
    jnz 80f

    # setpgid(0, 0): signals to the zygote's group are not for us.
    xor edi, edi
    xor esi, esi
    mov eax, 109
    syscall

    # The spare goes on in Python, so its C library has to know that it was forked.
    call r12
    test eax, eax
    jz 90f
    js 80f
    mov ebp, eax

    # prctl(PR_SET_NAME, "hotcell-keeper")
    mov edi, 15
    lea rsi, [rip + 99f]
    mov eax, 157
    syscall

    # close_range: all but `told`. Without it (before Linux 5.9) one by one.
    test ebx, ebx
    jz 10f
    xor edi, edi
    lea esi, [rbx - 1]
    xor edx, edx
    mov eax, 436
    syscall
    test rax, rax
    jnz 15f
10:
    lea edi, [rbx + 1]
    mov esi, -1
    xor edx, edx
    mov eax, 436
    syscall
    test rax, rax
    jz 18f
15:
    xor r13d, r13d
16:
    cmp r13d, ebx
    je 17f
    mov edi, r13d
    mov eax, 3
    syscall
17:
    inc r13d
    cmp r13d, 256
    jne 16b

    # Record::Spare { leader, keeper }
18:
    mov eax, 39
    syscall
    mov qword ptr [rsp], 5
    mov qword ptr [rsp + 8], rbp
    mov qword ptr [rsp + 16], rax
    mov qword ptr [rsp + 24], 0
    mov qword ptr [rsp + 32], 0
20:
    mov edi, ebx
    mov rsi, rsp
    mov edx, 40
    mov eax, 1
    syscall

    # wait4(-1, &status, __WALL, &usage); without children (ECHILD) all is over.
30:
    mov edi, -1
    lea rsi, [rsp + 40]
    mov edx, 0x40000000
    lea r10, [rsp + 48]
    mov eax, 61
    syscall
    cmp rax, -4
    je 30b
    test rax, rax
    js 70f
    cmp eax, ebp
    jne 30b

    # Record::Ended: exited with a code, or by a signal.
    mov eax, dword ptr [rsp + 40]
    mov ecx, eax
    and ecx, 127
    jnz 40f
    mov qword ptr [rsp], 3
    movzx ecx, ah
    jmp 50f
40:
    mov qword ptr [rsp], 4
50:
    mov qword ptr [rsp + 8], rcx
    imul rax, qword ptr [rsp + 48], 1000000
    add rax, qword ptr [rsp + 56]
    mov qword ptr [rsp + 16], rax
    imul rax, qword ptr [rsp + 64], 1000000
    add rax, qword ptr [rsp + 72]
    mov qword ptr [rsp + 24], rax
    mov rax, qword ptr [rsp + 80]
    shl rax, 10
    mov qword ptr [rsp + 32], rax
    jmp 20b

70:
    xor edi, edi
    jmp 81f
80:
    mov edi, 1
81:
    mov eax, 231
    syscall
90:
    add rsp, 216
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
99:
    .asciz "hotcell-keeper"
hotcell_keeper_end:
    .popsection
