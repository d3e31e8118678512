//! libFuzzer entry of `weir_fuzz::http2_header_block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::http2_header_block(data));
