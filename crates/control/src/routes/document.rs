//! The head of the API's document: everything but its paths and resources.

use utoipa::openapi::OpenApi as Described;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Rivulet control API",
        version = "1",
        description = "Operators list nodes, units and flows of a dispatcher, migrate flows, drain and resume \
                       nodes, and give all of them another policy. Errors are problems (RFC 9457), lists come in pages, and watches are server-sent events.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    servers((url = "/", description = "The Unix socket of a dispatcher, or its address over HTTPS")),
    modifiers(&Credentials),
    security((), ("token" = []), ("certificate" = [])),
    tags(
        (name = "status", description = "The run"),
        (name = "policy", description = "The policy of all nodes"),
        (name = "nodes", description = "Nodes of the cluster"),
        (name = "units", description = "Units that run the policy"),
        (name = "flows", description = "Flows, and the units that own them"),
        (name = "migrations", description = "Flows that move to other units"),
        (name = "watch", description = "Changes as they happen")
    )
)]
pub(super) struct Document;

/// The credentials of clients over TCP. The Unix socket needs none: only its user opens it.
struct Credentials;

impl Modify for Credentials {
    fn modify(&self, document: &mut Described) {
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("Over TCP: the token of --api-token (RFC 6750)"))
            .build();
        let certificate = SecurityScheme::MutualTls {
            description: Some("Over TCP: a certificate of the authority of clients".to_owned()),
            extensions: None,
        };
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(token));
        components.add_security_scheme("certificate", certificate);
    }
}
