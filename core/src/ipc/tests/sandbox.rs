//! Sharing in a sandbox that refuses system calls which everybody else may make.

use super::super::allocate_tensor;
use crate::dtype::DType;

/// Has the system refuse a call on this thread from now on, with EPERM.
fn refuse(call: libc::c_long) {
    // A program for the filter (seccomp(2)): loads the number of the call, and compares it.
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: only this thread gives up rights.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: a valid program, which the system copies.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) }, 0);
}

#[test]
fn a_limit_that_the_system_does_not_tell_is_none() {
    let allocating = std::thread::spawn(|| {
        refuse(libc::SYS_prlimit64);
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: room for the answer.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) }, -1, "it is refused");
        allocate_tensor(DType::INT32, &[16]).map(|tensor| tensor.as_slice::<i32>().map(<[i32]>::to_vec))
    });
    assert_eq!(allocating.join().expect("no panic"), Ok(Ok(vec![0; 16])));
}
