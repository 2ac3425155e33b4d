//! State per stream, of all 65,536 streams.

/// The stream that is ordered with all others: its messages are delivered after everything that was
/// sent before them, and before everything that was sent after them.
pub const ORDERED: u16 = 0;

/// Streams of a page.
const PAGE: usize = 256;

/// A table by stream; its pages are allocated at their first use.
#[derive(Debug)]
pub(crate) struct StreamTable<T> {
    pages: Box<[Option<Box<[T; PAGE]>>; PAGE]>,
}

impl<T: Copy + Default> StreamTable<T> {
    pub(crate) fn new() -> StreamTable<T> {
        StreamTable { pages: Box::new([const { None }; PAGE]) }
    }

    #[inline]
    pub(crate) fn at(&mut self, stream: u16) -> &mut T {
        let (page, index) = (usize::from(stream) / PAGE, usize::from(stream) % PAGE);
        &mut self.pages[page].get_or_insert_with(|| Box::new([T::default(); PAGE]))[index]
    }
}
