//! System calls that a signal interrupts: a debugger makes one end this way, as some kernels do with any signal.

use devexchange_core::ipc;

use super::alone;

/// The registers of a child that is stopped.
fn registers(pid: libc::pid_t) -> libc::user_regs_struct {
    // SAFETY: plain numbers, for which any value is valid.
    let mut found = unsafe { std::mem::zeroed::<libc::user_regs_struct>() };
    // SAFETY: a child that this thread traces, and room for the result.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut found) }, 0);
    found
}

fn set_registers(pid: libc::pid_t, registers: &libc::user_regs_struct) {
    // SAFETY: a child that this thread traces.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SETREGS, pid, 0, std::ptr::from_ref(registers)) }, 0);
}

/// Lets a child continue until it makes a system call or returns from one, or to its end. Returns its wait status.
fn next_stop(pid: libc::pid_t) -> Option<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: a child that this thread traces and that is stopped.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, 0) }, 0);
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        if !libc::WIFSTOPPED(status) {
            return Some(status);
        }
        if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 {
            return None;
        }
    }
}

#[test]
fn an_allocation_that_a_signal_breaks_off_goes_on() {
    let _alone = alone();
    // SAFETY: the child allocates, and ends without running handlers.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: the parent traces it from here on, and ends it if it ends itself.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME) };
        // SAFETY: stops this process, so that the parent has time to set its tracing options.
        unsafe { libc::raise(libc::SIGSTOP) };
        let failed = ipc::allocate(1 << 20).is_err();
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: the child that was made above.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    // SAFETY: a child that this thread traces.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) }, 0);
    let mut broken_off = false;
    let status = loop {
        if let Some(status) = next_stop(pid) {
            break status;
        }
        let at_call = registers(pid);
        if !broken_off && at_call.orig_rax == libc::SYS_fallocate as u64 {
            // Replaces the call by none, and sets its result.
            set_registers(pid, &libc::user_regs_struct { orig_rax: u64::MAX, ..at_call });
            assert_eq!(next_stop(pid), None);
            set_registers(pid, &libc::user_regs_struct { rax: -i64::from(libc::EINTR) as u64, ..registers(pid) });
            broken_off = true;
        }
    };
    assert!(broken_off, "it made room for a file");
    assert_eq!(status, 0, "a wait status");
}
