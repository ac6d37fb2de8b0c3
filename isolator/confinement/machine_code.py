"""Machine code of the gate and of inner processes, and ELF files with it. Pure.

The modules `gate` and `inner` describe the programs. The listings have the format of objdump(1). Sources: elf(5), the
System V ABI of each machine.
"""

import struct
from typing import Final

_ADDRESS: Final = 0x400000
_HEADERS: Final = 64 + 2 * 56
#: Program of the gate by machine name (uname(2)): ELF machine number (EM_*) and disassembly.
GATE: Final = {
    "x86_64": (
        62,
        """
    4989e4            mov %rsp,%r12
    4881ec00000400    sub $0x40000,%rsp
    b829000000        mov $0x29,%eax
    bf01000000        mov $0x1,%edi
    be05000800        mov $0x80005,%esi
    31d2              xor %edx,%edx
    0f05              syscall
    89c3              mov %eax,%ebx
    89c7              mov %eax,%edi
    488d3572020000    lea 0x272(%rip),%rsi # 29a <path>
    ba18000000        mov $0x18,%edx
    b82a000000        mov $0x2a,%eax
    0f05              syscall
    85c0              test %eax,%eax
    0f8852020000      js 28e <fail>
    89df              mov %ebx,%edi
    4889e6            mov %rsp,%rsi
    ba00000400        mov $0x40000,%edx
    31c0              xor %eax,%eax
    0f05              syscall
    4883f85a          cmp $0x5a,%rax
    0f8c3a020000      jl 28e <fail>
    b829000000        mov $0x29,%eax
    bf02000000        mov $0x2,%edi
    be02000800        mov $0x80002,%esi
    31d2              xor %edx,%edx
    0f05              syscall
    89c7              mov %eax,%edi
    4889e6            mov %rsp,%rsi
    31d2              xor %edx,%edx
    4531d2            xor %r10d,%r10d
    4989e0            mov %rsp,%r8
    41b910000000      mov $0x10,%r9d
    b82c000000        mov $0x2c,%eax
    0f05              syscall
    83f8ff            cmp $0xffffffff,%eax
    0f8504020000      jne 28e <fail>
    bd7c000000        mov $0x7c,%ebp
    b89d000000        mov $0x9d,%eax
    bf26000000        mov $0x26,%edi
    be01000000        mov $0x1,%esi
    31d2              xor %edx,%edx
    4531c0            xor %r8d,%r8d
    0f05              syscall
    85c0              test %eax,%eax
    0f85c9010000      jne 276 <tell>
    488b742410        mov 0x10(%rsp),%rsi
    4885f6            test %rsi,%rsi
    746c              je 123 <filter>
    b8bc010000        mov $0x1bc,%eax
    488d7c2418        lea 0x18(%rsp),%rdi
    0f05              syscall
    85c0              test %eax,%eax
    0f88ab010000      js 276 <tell>
    4189c6            mov %eax,%r14d
    48837c243000      cmpq $0x0,0x30(%rsp)
    7439              je 10f <enter>
    b802000000        mov $0x2,%eax
    488d7c243c        lea 0x3c(%rsp),%rdi
    be00002800        mov $0x280000,%esi
    0f05              syscall
    85c0              test %eax,%eax
    0f8887010000      js 276 <tell>
    89442438          mov %eax,0x38(%rsp)
    b8bd010000        mov $0x1bd,%eax
    4489f7            mov %r14d,%edi
    be01000000        mov $0x1,%esi
    488d542430        lea 0x30(%rsp),%rdx
    0f05              syscall
    85c0              test %eax,%eax
    0f8567010000      jne 276 <tell>
    b8be010000        mov $0x1be,%eax
    4489f7            mov %r14d,%edi
    31f6              xor %esi,%esi
    0f05              syscall
    85c0              test %eax,%eax
    0f8553010000      jne 276 <tell>
    66837c244000      cmpw $0x0,0x40(%rsp)
    7428              je 153 <behind>
    488d442458        lea 0x58(%rsp),%rax
    4889442448        mov %rax,0x48(%rsp)
    b89d000000        mov $0x9d,%eax
    bf16000000        mov $0x16,%edi
    be02000000        mov $0x2,%esi
    488d542440        lea 0x40(%rsp),%rdx
    0f05              syscall
    85c0              test %eax,%eax
    0f8523010000      jne 276 <tell>
    837c244400        cmpl $0x0,0x44(%rsp)
    747a              je 1d4 <go>
    b829000000        mov $0x29,%eax
    bf01000000        mov $0x1,%edi
    be05000800        mov $0x80005,%esi
    31d2              xor %edx,%edx
    0f05              syscall
    4189c6            mov %eax,%r14d
    89c7              mov %eax,%edi
    488d3521010000    lea 0x121(%rip),%rsi # 29a <path>
    ba18000000        mov $0x18,%edx
    b82a000000        mov $0x2a,%eax
    0f05              syscall
    85c0              test %eax,%eax
    0f88e9000000      js 276 <tell>
    b838000000        mov $0x38,%eax
    bf11c00000        mov $0xc011,%edi
    31f6              xor %esi,%esi
    31d2              xor %edx,%edx
    4531d2            xor %r10d,%r10d
    4531c0            xor %r8d,%r8d
    0f05              syscall
    85c0              test %eax,%eax
    0f88cb000000      js 276 <tell>
    7527              jne 1d4 <go>
    b821000000        mov $0x21,%eax
    4489f7            mov %r14d,%edi
    31f6              xor %esi,%esi
    0f05              syscall
    488d3df2000000    lea 0xf2(%rip),%rdi # 2b2 <inner>
    6a00              push $0x0
    57                push %rdi
    4889e6            mov %rsp,%rsi
    31d2              xor %edx,%edx
    b83b000000        mov $0x3b,%eax
    0f05              syscall
    e9ba000000        jmp 28e <fail>
    89df              mov %ebx,%edi
    4889e6            mov %rsp,%rsi
    ba01000000        mov $0x1,%edx
    b801000000        mov $0x1,%eax
    0f05              syscall
    4c8d6c2458        lea 0x58(%rsp),%r13
    4c036c2450        add 0x50(%rsp),%r13
    498b0424          mov (%r12),%rax
    4d8d7cc410        lea 0x10(%r12,%rax,8),%r15
    4c8b742408        mov 0x8(%rsp),%r14
    4d85f6            test %r14,%r14
    743e              je 240 <next>
    4901e6            add %rsp,%r14
    b82e010000        mov $0x12e,%eax
    31ff              xor %edi,%edi
    be04000000        mov $0x4,%esi
    4c89f2            mov %r14,%rdx
    4531d2            xor %r10d,%r10d
    0f05              syscall
    85c0              test %eax,%eax
    7559              jne 276 <tell>
    498d7610          lea 0x10(%r14),%rsi
    4d89e7            mov %r12,%r15
    4983ef08          sub $0x8,%r15
    498907            mov %rax,(%r15)
    4983ef08          sub $0x8,%r15
    498937            mov %rsi,(%r15)
    803e00            cmpb $0x0,(%rsi)
    488d7601          lea 0x1(%rsi),%rsi
    75f7              jne 232 <char>
    803e00            cmpb $0x0,(%rsi)
    75eb              jne 22b <each>
    41807d0000        cmpb $0x0,0x0(%r13)
    7422              je 269 <none>
    4c89ef            mov %r13,%rdi
    498d742410        lea 0x10(%r12),%rsi
    4c89fa            mov %r15,%rdx
    b83b000000        mov $0x3b,%eax
    0f05              syscall
    4189c6            mov %eax,%r14d
    41807d0000        cmpb $0x0,0x0(%r13)
    4d8d6d01          lea 0x1(%r13),%r13
    75f5              jne 25c <skip>
    ebd7              jmp 240 <next>
    bd7f000000        mov $0x7f,%ebp
    4183fefe          cmp $0xfffffffe,%r14d
    7402              je 276 <tell>
    ffcd              dec %ebp
    892c24            mov %ebp,(%rsp)
    89df              mov %ebx,%edi
    4889e6            mov %rsp,%rsi
    ba01000000        mov $0x1,%edx
    b801000000        mov $0x1,%eax
    0f05              syscall
    89ef              mov %ebp,%edi
    eb05              jmp 293 <out>
    bf7d000000        mov $0x7d,%edi
    b8e7000000        mov $0xe7,%eax
    0f05              syscall
""",
    ),
    "aarch64": (
        183,
        """
    f3030091          mov x19, sp
    ff0341d1          sub sp, sp, #64, lsl #12 // =262144
    c81880d2          mov x8, #198
    200080d2          mov x0, #1
    a10080d2          mov x1, #5
    0101a0f2          movk x1, #8, lsl #16
    020080d2          mov x2, #0
    010000d4          svc #0
    f40300aa          mov x20, x0
    c1140010          adr x1, #664
    020380d2          mov x2, #24
    681980d2          mov x8, #203
    010000d4          svc #0
    e013f837          tbnz w0, #31, 2b0 <fail>
    e00314aa          mov x0, x20
    e1030091          mov x1, sp
    8200a0d2          mov x2, #262144
    e80780d2          mov x8, #63
    010000d4          svc #0
    1f6801f1          cmp x0, #90
    0b130054          b.lt 2b0 <fail>
    c81880d2          mov x8, #198
    400080d2          mov x0, #2
    410080d2          mov x1, #2
    0101a0f2          movk x1, #8, lsl #16
    020080d2          mov x2, #0
    010000d4          svc #0
    e1030091          mov x1, sp
    020080d2          mov x2, #0
    030080d2          mov x3, #0
    e4030091          mov x4, sp
    050280d2          mov x5, #16
    c81980d2          mov x8, #206
    010000d4          svc #0
    1f040031          cmn w0, #1
    21110054          b.ne 2b0 <fail>
    990f80d2          mov x25, #124
    e81480d2          mov x8, #167
    c00480d2          mov x0, #38
    210080d2          mov x1, #1
    020080d2          mov x2, #0
    030080d2          mov x3, #0
    040080d2          mov x4, #0
    010000d4          svc #0
    000f0035          cbnz w0, 290 <tell>
    e10b40f9          ldr x1, [sp, #16]
    810300b4          cbz x1, 128 <filter>
    883780d2          mov x8, #444
    e0630091          add x0, sp, #24
    010000d4          svc #0
    400ef837          tbnz w0, #31, 290 <tell>
    f503002a          mov w21, w0
    e01b40f9          ldr x0, [sp, #48]
    000200b4          cbz x0, 114 <enter>
    080780d2          mov x8, #56
    600c8092          mov x0, #-100
    e1f30091          add x1, sp, #60
    0205a0d2          mov x2, #2621440
    030080d2          mov x3, #0
    010000d4          svc #0
    000df837          tbnz w0, #31, 290 <tell>
    e03b00b9          str w0, [sp, #56]
    a83780d2          mov x8, #445
    e003152a          mov w0, w21
    210080d2          mov x1, #1
    e2c30091          add x2, sp, #48
    030080d2          mov x3, #0
    010000d4          svc #0
    000c0035          cbnz w0, 290 <tell>
    c83780d2          mov x8, #446
    e003152a          mov w0, w21
    010080d2          mov x1, #0
    010000d4          svc #0
    600b0035          cbnz w0, 290 <tell>
    e0834079          ldrh w0, [sp, #64]
    20010034          cbz w0, 150 <behind>
    e0630191          add x0, sp, #88
    e02700f9          str x0, [sp, #72]
    e81480d2          mov x8, #167
    c00280d2          mov x0, #22
    410080d2          mov x1, #2
    e2030191          add x2, sp, #64
    010000d4          svc #0
    200a0035          cbnz w0, 290 <tell>
    e04740b9          ldr w0, [sp, #68]
    40040034          cbz w0, 1dc <go>
    c81880d2          mov x8, #198
    200080d2          mov x0, #1
    a10080d2          mov x1, #5
    0101a0f2          movk x1, #8, lsl #16
    020080d2          mov x2, #0
    010000d4          svc #0
    f803002a          mov w24, w0
    410a0010          adr x1, #328
    020380d2          mov x2, #24
    681980d2          mov x8, #203
    010000d4          svc #0
    6008f837          tbnz w0, #31, 290 <tell>
    881b80d2          mov x8, #220
    200298d2          mov x0, #49169
    010080d2          mov x1, #0
    020080d2          mov x2, #0
    030080d2          mov x3, #0
    040080d2          mov x4, #0
    010000d4          svc #0
    6007f837          tbnz w0, #31, 290 <tell>
    a0010035          cbnz w0, 1dc <go>
    080380d2          mov x8, #24
    e003182a          mov w0, w24
    010080d2          mov x1, #0
    020080d2          mov x2, #0
    010000d4          svc #0
    a0080010          adr x0, #276
    e07fbfa9          stp x0, xzr, [sp, #-16]!
    e1030091          mov x1, sp
    020080d2          mov x2, #0
    a81b80d2          mov x8, #221
    010000d4          svc #0
    36000014          b 2b0 <fail>
    e00314aa          mov x0, x20
    e1030091          mov x1, sp
    220080d2          mov x2, #1
    080880d2          mov x8, #64
    010000d4          svc #0
    f5630191          add x21, sp, #88
    e02b40f9          ldr x0, [sp, #80]
    b502008b          add x21, x21, x0
    600240f9          ldr x0, [x19]
    76420091          add x22, x19, #16
    d70e008b          add x23, x22, x0, lsl #3
    f80740f9          ldr x24, [sp, #8]
    580200b4          cbz x24, 254 <next>
    e0030091          mov x0, sp
    1803008b          add x24, x24, x0
    a82080d2          mov x8, #261
    000080d2          mov x0, #0
    810080d2          mov x1, #4
    e20318aa          mov x2, x24
    030080d2          mov x3, #0
    010000d4          svc #0
    00030035          cbnz w0, 290 <tell>
    01430091          add x1, x24, #16
    f70313aa          mov x23, x19
    ff8e1ff8          str xzr, [x23, #-8]!
    e18e1ff8          str x1, [x23, #-8]!
    20144038          ldrb w0, [x1], #1
    e0ffff35          cbnz w0, 244 <char>
    20004039          ldrb w0, [x1]
    80ffff35          cbnz w0, 240 <each>
    a0024039          ldrb w0, [x21]
    40010034          cbz w0, 280 <none>
    e00315aa          mov x0, x21
    e10316aa          mov x1, x22
    e20317aa          mov x2, x23
    a81b80d2          mov x8, #221
    010000d4          svc #0
    f803002a          mov w24, w0
    a0164038          ldrb w0, [x21], #1
    e0ffff35          cbnz w0, 274 <skip>
    f6ffff17          b 254 <next>
    f90f80d2          mov x25, #127
    1f0b0031          cmn w24, #2
    40000054          b.eq 290 <tell>
    d90f80d2          mov x25, #126
    f9030039          strb w25, [sp]
    e00314aa          mov x0, x20
    e1030091          mov x1, sp
    220080d2          mov x2, #1
    080880d2          mov x8, #64
    010000d4          svc #0
    e00319aa          mov x0, x25
    02000014          b 2b4 <out>
    a00f80d2          mov x0, #125
    c80b80d2          mov x8, #94
    010000d4          svc #0
""",
    ),
}
#: Program of inner processes by machine name, in the format of `GATE`.
INNER: Final = {
    "x86_64": (
        62,
        """
    b89d000000        mov $0x9d,%eax
    bf04000000        mov $0x4,%edi
    31f6              xor %esi,%esi
    31d2              xor %edx,%edx
    4531d2            xor %r10d,%r10d
    4531c0            xor %r8d,%r8d
    0f05              syscall
    4881ec00010000    sub $0x100,%rsp
    31db              xor %ebx,%ebx
    31c0              xor %eax,%eax
    48890424          mov %rax,(%rsp)
    b82c000000        mov $0x2c,%eax
    89df              mov %ebx,%edi
    4889e6            mov %rsp,%rsi
    ba10000000        mov $0x10,%edx
    41ba00400000      mov $0x4000,%r10d
    4531c0            xor %r8d,%r8d
    4531c9            xor %r9d,%r9d
    0f05              syscall
    488d742440        lea 0x40(%rsp),%rsi
    48c70600000000    movq $0x0,(%rsi)
    48c7460800000000  movq $0x0,0x8(%rsi)
    488d842480000000  lea 0x80(%rsp),%rax
    48894610          mov %rax,0x10(%rsi)
    48c7461801000000  movq $0x1,0x18(%rsi)
    488920            mov %rsp,(%rax)
    48c7400838000000  movq $0x38,0x8(%rax)
    488d8424a0000000  lea 0xa0(%rsp),%rax
    48894620          mov %rax,0x20(%rsi)
    48c7462818000000  movq $0x18,0x28(%rsi)
    c74010ffffffff    movl $0xffffffff,0x10(%rax)
    b82f000000        mov $0x2f,%eax
    89df              mov %ebx,%edi
    ba00000040        mov $0x40000000,%edx
    0f05              syscall
    4883f838          cmp $0x38,%rax
    7549              jne ed <exit>
    8bac24b0000000    mov 0xb0(%rsp),%ebp
    488b0424          mov (%rsp),%rax
    488b7c2408        mov 0x8(%rsp),%rdi
    488b742410        mov 0x10(%rsp),%rsi
    488b542418        mov 0x18(%rsp),%rdx
    4c8b542420        mov 0x20(%rsp),%r10
    4c8b442428        mov 0x28(%rsp),%r8
    4c8b4c2430        mov 0x30(%rsp),%r9
    0f05              syscall
    896c2408          mov %ebp,0x8(%rsp)
    4885c0            test %rax,%rax
    0f8545ffffff      jne 21 <answer>
    833c2438          cmpl $0x38,(%rsp)
    0f853bffffff      jne 21 <answer>
    89eb              mov %ebp,%ebx
    e934ffffff        jmp 21 <answer>
    b8e7000000        mov $0xe7,%eax
    31ff              xor %edi,%edi
    0f05              syscall
""",
    ),
    "aarch64": (
        183,
        """
    e81480d2          mov x8, #167
    800080d2          mov x0, #4
    010080d2          mov x1, #0
    020080d2          mov x2, #0
    030080d2          mov x3, #0
    040080d2          mov x4, #0
    010000d4          svc #0
    ff0304d1          sub sp, sp, #256
    13008052          mov w19, #0
    000080d2          mov x0, #0
    e00300f9          str x0, [sp]
    c81980d2          mov x8, #206
    e003132a          mov w0, w19
    e1030091          mov x1, sp
    020280d2          mov x2, #16
    030088d2          mov x3, #16384
    040080d2          mov x4, #0
    050080d2          mov x5, #0
    010000d4          svc #0
    e1030191          add x1, sp, #64
    3f7c00a9          stp xzr, xzr, [x1]
    e9030291          add x9, sp, #128
    2a0080d2          mov x10, #1
    292801a9          stp x9, x10, [x1, #16]
    eb030091          mov x11, sp
    0a0780d2          mov x10, #56
    2b2900a9          stp x11, x10, [x9]
    e9830291          add x9, sp, #160
    0a0380d2          mov x10, #24
    292802a9          stp x9, x10, [x1, #32]
    0a008012          mov w10, #-1
    2a1100b9          str w10, [x9, #16]
    881a80d2          mov x8, #212
    e003132a          mov w0, w19
    0200a852          mov w2, #1073741824
    010000d4          svc #0
    1fe000f1          cmp x0, #56
    c1010054          b.ne cc <exit>
    f4b340b9          ldr w20, [sp, #176]
    e80340a9          ldp x8, x0, [sp]
    e10b41a9          ldp x1, x2, [sp, #16]
    e31342a9          ldp x3, x4, [sp, #32]
    e51b40f9          ldr x5, [sp, #48]
    010000d4          svc #0
    f40b00b9          str w20, [sp, #8]
    a0fbffb5          cbnz x0, 28 <answer>
    e90340f9          ldr x9, [sp]
    3f7103f1          cmp x9, #220
    41fbff54          b.ne 28 <answer>
    f303142a          mov w19, w20
    d8ffff17          b 28 <answer>
    c80b80d2          mov x8, #94
    000080d2          mov x0, #0
    010000d4          svc #0
""",
    ),
}


def elf(machine: int, listing: str, data: bytes = b"") -> bytes:
    """Return a static ELF executable.

    Args:
        machine: ELF machine number, EM_*.
        listing: One instruction a line; each line begins with the bytes as hexadecimal digits.
        data: Bytes that follow the instructions.
    """
    body = b"".join(bytes.fromhex(line.split()[0]) for line in listing.strip().splitlines()) + data
    size = _HEADERS + len(body)
    # e_ident; e_type EXEC, e_machine, e_version, e_entry, e_phoff, e_shoff, e_flags, sizes and counts
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 2, machine, 1, _ADDRESS + _HEADERS, 64, 0, 0, 64, 56, 2, 64, 0, 0
    )
    # p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, _ADDRESS, _ADDRESS, size, size, 0x10000)
    stack = struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # PT_GNU_STACK: not executable
    return header + load + stack + body
