//! Starting: settings, workers, housekeeping.

use std::{
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use weir_base::Time;
use weir_engine::{net, sleep, spawn};

use super::{connection, core::Core, settings::OriginSettings};
use crate::server::{self, Origin, Places};

/// How often ended keys are swept and processor time is read.
const HOUSEKEEPING: Duration = Duration::from_millis(100);

/// Binds and serves. When it returns, clients can connect.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for settings that contradict each other; otherwise the address cannot be bound, or
/// a worker's runtime cannot be built.
pub fn start(settings: OriginSettings) -> io::Result<Origin> {
    settings.check()?;
    let client_ids = Arc::new(AtomicU64::new(0));
    let begun = Time::now();
    let OriginSettings { bind, workers, cpus, runtime, .. } = &settings;
    server::start(&Places { bind, workers: *workers, cpus, runtime }, |post| {
        let (settings, ids) = (settings.clone(), client_ids.clone());
        move || async move {
            let core = Rc::new(Core::new(settings, post.id, begun, post.stats.clone(), ids));
            let _housekeeper = spawn(keep_house(core.clone()));
            server::accept(&post.listener, post.inbox, &post.stats, |socket| connection::admit(&core, socket)).await;
        }
    })
}

async fn keep_house(core: Rc<Core>) {
    loop {
        let now = Time::now();
        core.store.borrow_mut().sweep(now);
        core.stats.cpu_nanos.store(net::thread_cpu_nanos(), Ordering::Relaxed);
        sleep(HOUSEKEEPING).await;
    }
}
