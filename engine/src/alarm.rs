//! The alarm that ends the sleep of a worker at a time.
//!
//! It is set seldom: deadlines mostly move to later times, and the alarm for an earlier time stays. A limit of the sleep itself costs each
//! sleep a read of the clock, and a timer in the kernel.

use std::{
    cell::Cell,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

use weir_base::time::Time;

/// The alarm of one worker: its descriptor has an edge each time that it goes off, and is never read.
pub(crate) struct Alarm {
    timer: OwnedFd,
    /// When it goes off.
    at: Cell<Time>,
}

impl Alarm {
    /// # Errors
    /// No descriptors left.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes plain numbers; the result is checked before it is owned.
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if timer < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that has no other owner.
        let timer = unsafe { OwnedFd::from_raw_fd(timer) };
        Ok(Self { timer, at: Cell::new(Time::NEVER) })
    }

    /// It goes off at `due` or earlier. `turn`: an alarm up to then has gone off.
    pub(crate) fn set(&self, due: Time, turn: Time) {
        let is_over = self.at.get() <= turn;
        if due >= self.at.get() && !is_over {
            return;
        }
        self.at.set(due);
        if due == Time::NEVER {
            return;
        }
        // Zero would be no alarm.
        let left = Time::now().until(due).as_nanos().max(1);
        let value = libc::timespec { tv_sec: (left / 1_000_000_000) as _, tv_nsec: (left % 1_000_000_000) as _ };
        let once = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // SAFETY: both pointers are valid or null as the call has them.
        let result = unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const once, ptr::null_mut()) };
        debug_assert_eq!(result, 0, "a valid time for an own descriptor");
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}
