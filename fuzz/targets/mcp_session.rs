//! libFuzzer entry of `weir_fuzz::mcp_session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::mcp_session(data));
