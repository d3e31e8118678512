//! libFuzzer entry of `weir_fuzz::tcp_client_hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::tcp_client_hello(data));
