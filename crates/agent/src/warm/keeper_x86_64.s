# A keeper as machine code. The zygote maps it and calls it as a function:
#
#   long fork_keeper(int told, int (*fork)(void), struct { long address, size, advice; } *pages, int count)
#
# It returns twice, as `fork` does: the keeper's id (or a negative number) in the zygote, 0 in the
# spare. The keeper itself never returns: it reaps what it has below it, tells the agent of the spare
# (the records of process/record.rs), and exits when nothing is left.
#
# The keeper shares the zygote's memory, because to copy an interpreter for it, and to free the copy,
# takes as long as a short script runs. It has a stack of its own. The zygote waits until the keeper has forked:
# both use one thread's variables of the C library. From then on the keeper calls only the kernel.
#
#   zygote   ── mmap ── clone ── futex: wait ─────────────┬── returns the keeper's id
#   keeper                └── fork ── futex: wake ────────┘── records, wait4, munmap, exit
#   spare                       └── takes the zygote's stack (its copy) ── returns 0
#
# It depends on no address, so it can be copied anywhere. rbx: told, rbp: the spare, r12: fork,
# r13: the keeper's memory, r14: the zygote's stack, with the time that it waits, the word that it
# waits for, and the number of pages, r15: pages.

    .set MEMORY_BYTES, 65536
    .set FRAME_BYTES, 224

    .pushsection .rodata.hotcell_keeper, "a"
    .globl hotcell_keeper_begin, hotcell_keeper_end
hotcell_keeper_begin:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    sub rsp, 40
    mov ebx, edi
    mov r12, rsi
    mov r14, rsp
    mov r15, rdx
    mov dword ptr [rsp + 24], ecx

    # mmap(0, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)
    xor edi, edi
    mov esi, MEMORY_BYTES
    mov edx, 3
    mov r10d, 0x4022
    mov r8, -1
    xor r9d, r9d
    mov eax, 9
    syscall
    cmp rax, -4096
    ja 95f
    mov r13, rax

    mov qword ptr [rsp], 2
    mov qword ptr [rsp + 8], 0
    mov qword ptr [rsp + 16], 0

    # clone(CLONE_VM | CLONE_PARENT | SIGCHLD): a child of the agent.
    mov edi, 0x8111
    lea rsi, [r13 + MEMORY_BYTES - FRAME_BYTES]
    xor edx, edx
    xor r10d, r10d
    xor r8d, r8d
    mov eax, 56
    syscall
    test rax, rax
    jz 3f
    js 92f
    mov rbp, rax

    # The zygote: futex(word, FUTEX_WAIT_PRIVATE, 0, 2 s) until the word is not 0.
1:
    mov eax, dword ptr [rsp + 16]
    test eax, eax
    jnz 2f
    lea rdi, [rsp + 16]
    mov esi, 128
    xor edx, edx
    mov r10, rsp
    mov eax, 202
    syscall
    cmp rax, -110
    jne 1b
    # Somebody has stopped or killed the keeper. The zygote gives up; a keeper that went on later would
    # fork it in the middle of something else: kill(keeper, SIGKILL).
    mov edi, ebp
    mov esi, 9
    mov eax, 62
    syscall
    mov rax, -110
    jmp 95f
2:
    mov rax, rbp
    jmp 95f

    # The keeper.
3:
    # prctl(PR_SET_CHILD_SUBREAPER, 1)
    mov edi, 36
    mov esi, 1
    xor edx, edx
    xor r10d, r10d
    xor r8d, r8d
    mov eax, 157
    syscall
    mov ebp, -1
    test rax, rax
    jnz 4f

    # setpgid(0, 0): signals to the zygote's group are not for us.
    xor edi, edi
    xor esi, esi
    mov eax, 109
    syscall

    # The spare goes on in Python, so its C library has to know that it was forked.
    call r12
    test eax, eax
    jz 90f
    mov ebp, eax

    # futex(word, FUTEX_WAKE_PRIVATE, 1). The zygote's stack is its own again.
4:
    mov dword ptr [r14 + 16], 1
    lea rdi, [r14 + 16]
    mov esi, 129
    mov edx, 1
    mov eax, 202
    syscall
    test ebp, ebp
    js 80f

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
    xor r14d, r14d
16:
    cmp r14d, ebx
    je 17f
    mov edi, r14d
    mov eax, 3
    syscall
17:
    inc r14d
    cmp r14d, 256
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

    # munmap and exit_group, without a stack.
70:
    xor r14d, r14d
    jmp 81f
80:
    mov r14d, 1
81:
    mov rdi, r13
    mov esi, MEMORY_BYTES
    mov eax, 11
    syscall
    mov edi, r14d
    mov eax, 231
    syscall

    # The spare, on a copy of the zygote's stack. madvise(address, size, advice) for its pages: a kernel
    # that cannot get them now does it later.
90:
    mov rsp, r14
    xor ebp, ebp
    mov ebx, dword ptr [rsp + 24]
91:
    test ebx, ebx
    jz 93f
    mov rdi, qword ptr [r15]
    mov rsi, qword ptr [r15 + 8]
    mov rdx, qword ptr [r15 + 16]
    mov eax, 28
    syscall
    add r15, 24
    dec ebx
    jmp 91b
    # The zygote, without a keeper.
92:
    mov rbp, rax
93:
    mov rdi, r13
    mov esi, MEMORY_BYTES
    mov eax, 11
    syscall
    mov rax, rbp
95:
    add rsp, 40
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
99:
    .asciz "hotcell-keeper"
hotcell_keeper_end:
    .popsection
