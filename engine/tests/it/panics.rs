//! Panics of tasks: that of the main one is the worker's, that of another one is its own.

use std::sync::Arc;

use weir_engine::{Worker, settings::RuntimeSettings, spawn};

fn end<M: Future<Output = ()> + 'static>(main: impl FnOnce() -> M + Send + 'static) -> std::io::Result<()> {
    Worker::start(0, None, &RuntimeSettings::default(), Arc::default(), main).expect("it starts").join()
}

#[test]
fn the_end_of_a_worker_shows_the_panic_of_its_main_task_alone() {
    assert!(end(|| async {}).is_ok());
    assert!(end(|| async { panic!("on purpose") }).is_err());
    assert!(end(|| async { drop(spawn(async { panic!("on purpose") })) }).is_ok());
}
