//! Certificates that clients will refuse: expired, not yet valid, or for other names.

use std::iter;

use weir_base::time::{from_rfc3339, rfc3339};

use crate::checks::warn_at;
use crate::document::At;
use crate::pem::{Certificates, PemFile};
use crate::reader::Reader;
use crate::sections::{CertificateSection, ListenerTlsSection};
use crate::snapshot::ServedCertificate;

/// Warns of the first certificate of a file that is not valid now.
pub(super) fn validity(file: Option<&At<PemFile<Certificates>>>, path: &str, key: &str, reader: &mut Reader<'_>) {
    let Some(file) = file else { return };
    let now = rfc3339(reader.surroundings.now().as_secs());
    let wrong = file.value.certificates.iter().find_map(|one| {
        let (begins, ends) = one.validity.as_ref()?;
        if *ends < now {
            return Some(format!("has a certificate ({}) that expired on {ends}", one.name));
        }
        (*begins > now).then(|| format!("has a certificate ({}) that is not valid before {begins}", one.name))
    });
    if let Some(what) = wrong {
        let help = format!("replace it with a valid one; the clock of this machine shows {now}");
        warn_at(file, path, key, &what, help, reader);
    }
}

/// The certificates that a listener shows, if their end is known.
pub(super) fn served(section: &ListenerTlsSection) -> Vec<ServedCertificate> {
    let others = section.certificate.iter().map(|one| one.cert_file.as_ref());
    let files = iter::once(section.cert_file.as_ref()).chain(others).flatten();
    let served = |file: &At<PemFile<Certificates>>| {
        let chain = &file.value.certificates;
        let leaf = chain.first()?;
        let ends = chain.iter().filter_map(|one| from_rfc3339(&one.validity.as_ref()?.1));
        Some(ServedCertificate {
            name: leaf.hosts.first().unwrap_or(&leaf.name).as_str().into(),
            expires_at: ends.min()?,
        })
    };
    files.filter_map(served).collect()
}

/// Warns of names for which a certificate is shown that does not have them.
pub(super) fn names(section: &CertificateSection, path: &str, reader: &mut Reader<'_>) {
    let Some(leaf) = section.cert_file.as_ref().and_then(|file| file.value.certificates.first()) else { return };
    for name in section.names.iter().flat_map(|list| &list.value) {
        if !leaf.is_for(&name.value.0) {
            let what =
                format!("has \"{}\", a name that its certificate does not have: clients will reject it", name.value);
            let help = format!("names in the certificate: {}", leaf.hosts.join(", "));
            warn_at(name, path, "names", &what, help, reader);
        }
    }
}
