//! The parts of a start that depend on this machine: the addresses, and the file of the access log. A check on the machine
//! that the file is for reports their errors before the start does.

use std::path::Path;

use weir_engine::settings::Address;

use crate::diagnostic::Span;
use crate::reader::Reader;
use crate::sections::FileSection;
use crate::snapshot::LogTarget;
use crate::surroundings::Listening;

/// Tries them, if the surroundings do: those of a start and of a reload do not, because these find out themselves.
pub(super) fn file(file: &FileSection, reader: &mut Reader<'_>) {
    let admin = &file.admin.bind;
    listen("admin.bind", &Address::Socket(admin.value.0), false, &admin.span, reader);
    for (index, section) in file.listener.iter().enumerate() {
        if let Some(bind) = &section.bind {
            listen(&format!("listener[{index}].bind"), &bind.value.0, section.reuse_port.value, &bind.span, reader);
        }
    }
    if let LogTarget::File(path) = &file.telemetry.access_log.target.value {
        append(path, &file.telemetry.access_log.target.span, reader);
    }
}

fn listen(path: &str, address: &Address, reuse_port: bool, span: &Span, reader: &mut Reader<'_>) {
    match reader.surroundings.listen(address, reuse_port) {
        Listening::Possible => {}
        Listening::ByGateway(who) => {
            let message = format!("`{path}` {address} was not tried: {who} listens there");
            reader.problems.note(span, path, message, "a reload or an upgrade of that gateway keeps the address");
        }
        Listening::ByHidden => {
            let message =
                format!("`{path}` {address} was not tried: a process that this user may not see listens there");
            let help =
                "a reload or an upgrade of the gateway that runs this file keeps the address; `weir run` would fail";
            reader.problems.note(span, path, message, help);
        }
        Listening::Refused(error) => {
            let message = format!("`{path}`: cannot listen on {address}: {error}");
            let help = match error.kind() {
                std::io::ErrorKind::AddrInUse => "free it, or choose another address",
                std::io::ErrorKind::PermissionDenied if matches!(address, Address::Unix(_)) => {
                    "let the user of this process write to the directory"
                }
                std::io::ErrorKind::PermissionDenied => {
                    "a port below 1024 needs CAP_NET_BIND_SERVICE; choose a higher one"
                }
                std::io::ErrorKind::AddrNotAvailable => "choose an address of this machine",
                _ => "choose an address at which this process may listen",
            };
            reader.problems.error(span, path, message, help);
        }
    }
}

fn append(file: &Path, span: &Span, reader: &mut Reader<'_>) {
    let Err(error) = reader.surroundings.append(file) else { return };
    let path = "telemetry.access_log.target";
    let directory = file.parent().unwrap_or(Path::new("/")).display();
    let message = format!("`{path}`: cannot open {} for writing: {error}", file.display());
    let help = match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("create the directory {directory}, and let the user of the gateway write to it")
        }
        std::io::ErrorKind::PermissionDenied => format!("let this user write to {} and to {directory}", file.display()),
        _ => "name a file to which lines can be appended".to_owned(),
    };
    reader.problems.error(span, path, message, help);
}
