//! A PostgreSQL session in its simulated world.

/// Bytes of a client as they are; see [`weir_postgres_simulation::raw::run_raw`].
pub fn postgres_session(data: &[u8]) {
    weir_postgres_simulation::raw::run_raw(data);
}
