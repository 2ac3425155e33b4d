//! A live view of a running policy: rates between successive reports, and a screen that shows them.

mod rates;
mod view;

pub use rates::ReportRates;
pub use view::LiveView;
