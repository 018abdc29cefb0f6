//! Host names: sprig's `network.go`.

use gotemplate::function::{Call, Error};
use gotemplate::string::Str;

use crate::context::Context;

/// One of the addresses of a host; "" if the render may not resolve names.
pub(super) fn get_host_by_name(call: &mut Call, name: Str) -> Result<String, Error> {
    let context = call.host::<Context>()?;
    let Some(resolver) = &context.resolver else {
        return Ok(String::new());
    };
    let mut addresses = resolver.addresses(&name.lossy());
    if addresses.is_empty() {
        // Sprig picks a random one out of none.
        return Err(Error::new("invalid argument to Intn"));
    }
    let drawn = context.random_below(addresses.len() as u64) as usize;
    Ok(addresses.swap_remove(drawn))
}
