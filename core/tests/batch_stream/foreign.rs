//! Both kinds of stream, as a foreign program uses and makes them.

use super::*;

pub(crate) trait Foreign: Sized {
    type Chunk;
    const NAME: &'static str;
    fn get_schema(&mut self, out: *mut ArrowSchema) -> c_int;
    fn get_next(&mut self, out: *mut Self::Chunk) -> c_int {
        unsafe { Self::next_at(self, out) }
    }
    /// For a stream that is released during the call, so that nothing else may hold on to it.
    unsafe fn next_at(stream: *mut Self, out: *mut Self::Chunk) -> c_int;
    fn last_error(&mut self) -> Option<String>;
    fn release(&mut self);
    fn is_released(&self) -> bool;
    fn array(chunk: &mut Self::Chunk) -> &mut ArrowArray;
    fn chunk(array: ArrowArray) -> Self::Chunk;
    fn export(stream: BatchStream) -> Self;
    fn import(&mut self) -> Result<BatchStream>;
    /// A struct whose callbacks do what `Producer` says.
    fn produced(producer: Producer<Self::Chunk>) -> Self;
    fn members(&self) -> [usize; 5];
    /// The next value, `None` at the end, or the code.
    fn pull(&mut self, released: &mut Vec<ArrowArray>) -> std::result::Result<Option<i32>, c_int> {
        let mut chunk = unsafe { MaybeUninit::<Self::Chunk>::zeroed().assume_init() };
        match self.get_next(&mut chunk) {
            0 => {}
            code => return Err(code),
        }
        let array = *Self::array(&mut chunk);
        if array.release.is_none() {
            return Ok(None);
        }
        released.push(array);
        let column = unsafe { **array.children };
        Ok(Some(unsafe { *(*column.buffers.add(1)).cast::<i32>() }))
    }
}

pub(crate) type Step<C> = Box<dyn FnMut(*mut C) -> c_int + Send>;

/// What a foreign producer does.
pub(crate) struct Producer<C> {
    pub(crate) get_schema: Box<dyn FnMut(*mut ArrowSchema) -> c_int + Send>,
    pub(crate) get_next: Step<C>,
    pub(crate) text: *const c_char,
    pub(crate) calls: Arc<Calls>,
}

#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) get_schema: AtomicUsize,
    pub(crate) get_next: AtomicUsize,
    pub(crate) release: AtomicUsize,
}

impl<C> Producer<C> {
    pub(crate) fn new(get_next: impl FnMut(*mut C) -> c_int + Send + 'static) -> (Self, Arc<Calls>) {
        let calls = Arc::new(Calls::default());
        let get_schema = |out| {
            unsafe { schema().export(out) }.unwrap();
            0
        };
        let (get_schema, get_next) = (Box::new(get_schema), Box::new(get_next));
        (Self { get_schema, get_next, text: c"it is on fire".as_ptr(), calls: Arc::clone(&calls) }, calls)
    }
}

macro_rules! foreign {
    ($Struct:ident, $Chunk:ident, $export:ident, $import:ident, |$chunk:ident| $array:expr, |$given:ident| $made:expr
     $(, $device_type:ident)?) => {
        impl Foreign for $Struct {
            type Chunk = $Chunk;
            const NAME: &'static str = stringify!($Struct);
            fn get_schema(&mut self, out: *mut ArrowSchema) -> c_int {
                unsafe { self.get_schema.unwrap()(self, out) }
            }
            unsafe fn next_at(stream: *mut Self, out: *mut $Chunk) -> c_int {
                unsafe { (*stream).get_next.unwrap()(stream, out) }
            }
            fn last_error(&mut self) -> Option<String> {
                let text = unsafe { self.get_last_error.unwrap()(self) };
                (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned())
            }
            fn release(&mut self) {
                if let Some(release) = self.release {
                    unsafe { release(self) }
                    assert!(self.release.is_none());
                }
            }
            fn is_released(&self) -> bool {
                self.release.is_none()
            }
            fn array($chunk: &mut $Chunk) -> &mut ArrowArray {
                $array
            }
            fn chunk($given: ArrowArray) -> $Chunk {
                $made
            }
            fn members(&self) -> [usize; 5] {
                [
                    self.get_schema.map_or(0, |callback| callback as usize),
                    self.get_next.map_or(0, |callback| callback as usize),
                    self.get_last_error.map_or(0, |callback| callback as usize),
                    self.release.map_or(0, |callback| callback as usize),
                    self.private_data as usize,
                ]
            }
            fn export(stream: BatchStream) -> Self {
                let mut out = MaybeUninit::uninit();
                unsafe { stream.$export(out.as_mut_ptr()) }.unwrap();
                unsafe { out.assume_init() }
            }
            fn import(&mut self) -> Result<BatchStream> {
                unsafe { BatchStream::$import(self) }
            }
            fn produced(producer: Producer<$Chunk>) -> Self {
                unsafe extern "C" fn get_schema(stream: *mut $Struct, out: *mut ArrowSchema) -> c_int {
                    let producer = unsafe { &mut *(*stream).private_data.cast::<Producer<$Chunk>>() };
                    producer.calls.get_schema.fetch_add(1, SeqCst);
                    (producer.get_schema)(out)
                }
                unsafe extern "C" fn get_next(stream: *mut $Struct, out: *mut $Chunk) -> c_int {
                    let producer = unsafe { &mut *(*stream).private_data.cast::<Producer<$Chunk>>() };
                    producer.calls.get_next.fetch_add(1, SeqCst);
                    (producer.get_next)(out)
                }
                unsafe extern "C" fn get_last_error(stream: *mut $Struct) -> *const c_char {
                    unsafe { (*(*stream).private_data.cast::<Producer<$Chunk>>()).text }
                }
                unsafe extern "C" fn release(stream: *mut $Struct) {
                    let producer = unsafe { Box::from_raw((*stream).private_data.cast::<Producer<$Chunk>>()) };
                    producer.calls.release.fetch_add(1, SeqCst);
                    unsafe { (*stream).release = None };
                }
                $Struct {
                    $($device_type: 1,)?
                    get_schema: Some(get_schema),
                    get_next: Some(get_next),
                    get_last_error: Some(get_last_error),
                    release: Some(release),
                    private_data: Box::into_raw(Box::new(producer)).cast(),
                }
            }
        }
    };
}
foreign!(ArrowArrayStream, ArrowArray, export, import, |chunk| chunk, |array| array);
foreign!(
    ArrowDeviceArrayStream,
    ArrowDeviceArray,
    export_device,
    import_device,
    |chunk| &mut chunk.array,
    |array| ArrowDeviceArray { array, device_id: -1, device_type: 1, sync_event: null_mut(), reserved: [0; 3] },
    device_type
);

/// Runs a test for both structs.
macro_rules! for_both {
    ($name:ident, $test:ident) => {
        #[test]
        fn $name() {
            $test::<ArrowArrayStream>();
            $test::<ArrowDeviceArrayStream>();
        }
    };
}
pub(crate) use for_both;

/// An array of one column by a foreign producer, with the value in all rows.
pub(crate) fn foreign_array(value: i32, released: &Arc<AtomicUsize>) -> ArrowArray {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let mut out = MaybeUninit::uninit();
    let batch = batch(SCHEMA.get_or_init(schema), value, released);
    unsafe { batch.export(out.as_mut_ptr()) }.unwrap();
    unsafe { out.assume_init() }
}
