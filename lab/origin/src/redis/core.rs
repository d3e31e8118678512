//! State that all connections of one worker share: plain cells, touched by one thread.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use weir_base::Time;
use weir_resp::{RequestLimits, encode};

use super::{
    channels::Channels,
    faults::Dice,
    memory::Memory,
    settings::{Mode, OriginSettings},
    store::Store,
};
use crate::server::WorkerStats;

/// See the module.
pub struct Core {
    pub settings: OriginSettings,
    pub start: Time,
    pub memory: Rc<Memory>,
    pub store: RefCell<Store>,
    pub channels: RefCell<Channels>,
    /// `None`: no fault is left to chance.
    pub dice: Option<RefCell<Dice>>,
    /// `Some` in fixed mode: the whole reply to `GET`.
    pub payload: Option<Vec<u8>>,
    pub stats: Arc<WorkerStats>,
    client_ids: Arc<AtomicU64>,
}

impl Core {
    /// The shared state of worker `id`; made on its thread. `start` is the same for all workers, as stalls count from it.
    pub fn new(
        settings: OriginSettings,
        id: usize,
        start: Time,
        stats: Arc<WorkerStats>,
        client_ids: Arc<AtomicU64>,
    ) -> Self {
        let memory = Rc::new(Memory::new(settings.memory_bytes_max));
        let payload = match settings.mode {
            Mode::Memory => None,
            Mode::Fixed { payload } => {
                let mut reply = Vec::new();
                encode::bulk(&mut reply, &vec![b'x'; payload]);
                Some(reply)
            }
        };
        Self {
            start,
            store: RefCell::new(Store::new(&memory)),
            memory,
            channels: RefCell::default(),
            dice: Dice::new(&settings.faults, id).map(RefCell::new),
            payload,
            stats,
            client_ids,
            settings,
        }
    }

    pub fn next_client_id(&self) -> u64 {
        self.client_ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Limits of the parser for a new client. Nothing is streamed: each command is complete when it is answered.
    pub fn request_limits(&self) -> RequestLimits {
        RequestLimits {
            bulk_bytes_max: u32::try_from(self.settings.message_bytes_max).unwrap_or(u32::MAX),
            stream_bytes: u32::MAX,
            authenticated: self.settings.password.is_none(),
            ..RequestLimits::default()
        }
    }
}
