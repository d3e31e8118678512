//! The shell on one worker, between scripted clients and scripted servers: the real exchange in one process.

mod budget;
mod exchanges;
mod limits;
mod logins;
mod sets;
mod support;
mod unanswered;
