# The corpus of bad input (tests/corpus) through the Julia API. The library of the corpus defines the cases and checks the
# structs; this file imports them and compares the errors.

const CORPUS = let
    build = normpath(joinpath(@__DIR__, "..", "..", "..", "tests", "corpus", "build.sh"))
    # The build must not load Julia's libraries.
    library = withenv(() -> readchomp(`$build`), "LD_LIBRARY_PATH" => nothing)
    Libdl.dlopen(library)
end
corpus(name) = Libdl.dlsym(CORPUS, name)

corpus_text(i, what) = unsafe_string(ccall(corpus(:corpus_text), Ptr{UInt8}, (Int64, Cstring), i, what))
corpus_string(p) = p == C_NULL ? nothing : unsafe_string(p)

# The numbers of all cases for Julia.
function corpus_cases()
    all = 0:ccall(corpus(:corpus_count), Int64, ())-1
    cases = filter(i -> ccall(corpus(:corpus_is_for), Cint, (Int64, Cstring), i, "julia") != 0, all)
    length(cases) == ccall(corpus(:corpus_count_for), Int64, (Cstring,), "julia") || error("not all cases were found")
    length(cases) > 300 || error("there are $(length(cases)) cases")
    return cases
end

function corpus_import(kind, made)
    at = ccall(corpus(:corpus_address), Ptr{Cvoid}, (Ptr{Cvoid},), made)
    schema = Ptr{ArrowSchema}(ccall(corpus(:corpus_schema), Ptr{Cvoid}, (Ptr{Cvoid},), made))
    kind == "schema" && return import_schema(Ptr{ArrowSchema}(at))
    kind == "array" && return import_arrow(Ptr{ArrowArray}(at), schema)
    kind == "device_array" && return import_arrow_device(Ptr{ArrowDeviceArray}(at), schema)
    kind == "stream" && return import_arrow(Ptr{ArrowArrayStream}(at))
    kind == "device_stream" && return import_arrow_device(Ptr{ArrowDeviceArrayStream}(at))
    kind == "dlpack" && return import_dlpack(Ptr{DLManagedTensorVersioned}(at))
    kind == "dlpack_legacy" && return import_dlpack_legacy(Ptr{DLManagedTensor}(at))
    kind == "cuda_array" && return import_cuda_array(at)
    kind == "async" && return corpus_async(made)
    kind in ("ipc_tensor", "ipc_batch") || error("there is no import of a $kind")
    client = IpcClient(unsafe_string(ccall(corpus(:corpus_listens), Ptr{UInt8}, (Ptr{Cvoid},), made)))
    try
        return kind == "ipc_tensor" ? import_tensor(client, "t") : import_batch(client, "t")
    finally
        close(client)
    end
end

function corpus_async(made)
    drive(handler) = ccall(corpus(:corpus_drive), Cvoid, (Ptr{Cvoid}, Ptr{Cvoid}), made, handler)
    reader = try
        AsyncReader(; limit=4, abi_h_metadata=true)
    catch
        drive(C_NULL)
        rethrow()
    end
    try
        drive(DX.handler(reader))
        close(schema(reader))
        return reader
    catch
        close(reader)
        rethrow()
    end
end

# Reads everything, and counts the batches of a stream.
read_corpus(batch::Batch, batches) = look(root(batch))
function read_corpus(stream::Union{BatchStream,AsyncReader}, batches)
    for batch in stream
        batches[] += 1
        close(batch)
    end
end
read_corpus(other, batches) = nothing

look(@nospecialize(values::AbstractVector)) = foreach(k -> look(values[k]), 1:length(values))
look(@nospecialize(value)) = nothing

# `arm` makes the nth allocation of the library fail, alone or with all that follow. `disarm` returns how many failed.
arm(nth, from_then_on) = ccall(corpus(:corpus_fault_arm), Cvoid, (Int64, Cint), nth, from_then_on)
disarm() = ccall(corpus(:corpus_fault_disarm), Int64, ())

# What fails while a case runs: the nth allocation (0: none), or the nth callback of its producer in one of several ways.
struct MemoryFault
    nth::Int
    from_then_on::Bool
end
arm(fault::MemoryFault) = fault.nth > 0 && arm(fault.nth, fault.from_then_on)
disarm(::MemoryFault) = disarm()

struct CallbackFault
    nth::Int
    how::Int
end
arm(fault::CallbackFault) = ccall(corpus(:corpus_callback_arm), Cvoid, (Int64, Cint), fault.nth, fault.how)
disarm(::CallbackFault) = Int(ccall(corpus(:corpus_callback_disarm), Cint, ()))

# Whether a case behaves as it should, also with a fault, and how many faults came. Prints what is wrong, if anything.
corpus_case(i) = corpus_case(i, MemoryFault(0, false))[1]
function corpus_case(i, fault)
    made = ccall(corpus(:corpus_make), Ptr{Cvoid}, (Int64,), i)
    after(refused) = corpus_string(ccall(corpus(:corpus_after), Ptr{UInt8}, (Ptr{Cvoid}, Cint), made, refused))
    stage, batches, failed, wrong, imported = "import", Ref(0), nothing, nothing, nothing
    arm(fault)
    try
        imported = corpus_import(corpus_text(i, "kind"), made)
        wrong = after(false)
        stage = "read"
        read_corpus(imported, batches)
    catch e
        e isa DevExchangeError || rethrow()
        failed = e
        stage == "import" && (wrong = after(true))
    end
    imported === nothing || close(imported)
    faults = disarm(fault)
    if wrong === nothing && faults > 0 && fault isa CallbackFault
        wrong = judge_callback(failed)
    elseif wrong === nothing && (faults == 0 || failed === nothing || failed.status != DX.DEVX_OUT_OF_MEMORY)
        # If an allocation failed, out of memory is a correct error at any stage.
        wrong = judge_corpus(i, failed, stage, batches[], faults == 0)
    end
    left = corpus_string(ccall(corpus(:corpus_end), Ptr{UInt8}, (Ptr{Cvoid},), made))
    wrong === nothing && (wrong = left)
    wrong === nothing && !nothing_left() && (wrong = "something is left")
    wrong === nothing || println(corpus_text(i, "name"), ", ", fault, ": ", wrong)
    return wrong === nothing, faults
end

# Says what is wrong with the outcome after a callback failed.
function judge_callback(failed)
    status = ccall(corpus(:corpus_callback_status), Int32, ())
    says = unsafe_string(ccall(corpus(:corpus_callback_says), Ptr{UInt8}, ()))
    right = failed !== nothing && failed.status == status && occursin(says, failed.message)
    right && return nothing
    return "$(failed === nothing ? "no error" : sprint(showerror, failed)); expected $(DX.status_name(status)): $says"
end

# Says what is wrong with an error, or with the absence of one.
function judge_corpus(i, failed, stage, batches, in_words)
    status, says = corpus_text(i, "status"), corpus_text(i, "says")
    wanted = ccall(corpus(:corpus_batches), Int64, (Int64,), i)
    batches == wanted || return "$batches batches came, not $wanted"
    failed === nothing && return isempty(status) ? nothing : "it was accepted, but is $status: $says"
    as_expected = DX.status_name(failed.status) == status && (!in_words || occursin(says, failed.message))
    as_expected && stage == corpus_text(i, "stage") && return nothing
    return "$(sprint(showerror, failed)) at $stage; expected $status: $says"
end
