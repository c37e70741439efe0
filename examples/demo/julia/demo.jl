# The demo's consumer in Julia: imports two record batches and a tensor from libweather without a copy, computes a few
# figures, exports a tensor to libweather, and releases everything.
#
#   julia --project=bindings-julia/DevExchange.jl examples/demo/julia/demo.jl DATADIR
#
# With DEVX_DEVICE=cuda in the environment, the tables come in the memory of a CUDA device. Then this program queues its
# work on its own stream, computes the figures from copies in host memory, and exports the means in device memory.
#
# DEVX_WEATHER is the path of libweather.so. Prints KEY=VALUE lines for examples/demo/run.sh; every language prints the
# same keys. Any error ends the program with status 1 and a message on stderr.

using DevExchange
using Dates, Libdl, Printf

fail(words...) = (println(stderr, "demo: ", words...); exit(1))

length(ARGS) == 1 || fail("usage: demo.jl DATADIR")
const WEATHER_PATH = get(ENV, "DEVX_WEATHER", "libweather.so")
const WEATHER = Libdl.dlopen_e(WEATHER_PATH)
WEATHER == C_NULL && fail(WEATHER_PATH, " could not be loaded")
weather(name) = Libdl.dlsym(WEATHER, name)

# Ends the program if a call of libweather has failed.
worked(status) = status == 0 || fail("libweather: ", unsafe_string(ccall(weather(:weather_error), Cstring, ())))

# --- the device ---

const DEVICE_NAME = get(ENV, "DEVX_DEVICE", "host")
DEVICE_NAME in ("host", "cuda") || fail("DEVX_DEVICE is ", DEVICE_NAME, ", neither host nor cuda")
const DEVICE = DEVICE_NAME == "cuda" ? DevExchange.cuda() : DevExchange.CPU
# No stream for host memory, which is always ready.
const STREAM = DEVICE == DevExchange.CPU ? nothing : DeviceStream(DEVICE)
stream_number() = STREAM === nothing ? -1 : STREAM.value

# A batch or tensor in host memory, for computing: a copy if it is on a device.
on_host(x) = STREAM === nothing ? share(x) : copy_to(x, DevExchange.CPU, STREAM)

# Waits for releases: memory that work on the stream uses is released after that work, on a thread of the library.
function finish_releases()
    timedwait(() -> releases_waiting() == 0, 10.0; pollint=0.001) === :ok || fail("the releases still wait after 10 s")
    releases_lost() == 0 || fail(releases_lost(), " release(s) were never called")
end

# --- importing ---

function open_weather(directory)
    w = Ref{Ptr{Cvoid}}(C_NULL)
    worked(ccall(weather(:weather_open), Cint, (Cstring, Ptr{Ptr{Cvoid}}), directory, w))
    worked(ccall(weather(:weather_use_device), Cint, (Ptr{Cvoid}, DLDevice), w[], DEVICE))
    return w[]
end

# Takes the batch that libweather exports: the import moves its contents out of the two structs.
function take_batch(w, name)
    array, schema = Ref(ArrowDeviceArray()), Ref(ArrowSchema())
    worked(ccall(weather(name), Cint, (Ptr{Cvoid}, Ptr{ArrowDeviceArray}, Ptr{ArrowSchema}), w, array, schema))
    return import_arrow_device(array, schema)
end

# Names our stream to libweather, which makes it wait, on the device, until the data is ready.
function take_measurements(w)
    managed = Ref{Ptr{DLManagedTensorVersioned}}(C_NULL)
    worked(ccall(weather(:weather_measurements), Cint, (Ptr{Cvoid}, Int64, Ptr{Ptr{DLManagedTensorVersioned}}),
        w, stream_number(), managed))
    return import_dlpack(Tensor{Float64,2}, managed[]; stream=STREAM)
end

# --- zero copy ---

# Compares each address with the producer's. The last buffer of a column has the values: of text, the bytes.
function check_addresses(w, airports, days, measurements)
    of(column) = last(DevExchange.buffers(column))
    found = [
        "airports.iata" => of(airports["iata"]),
        "airports.name" => of(airports["name"]),
        "airports.latitude" => pointer(airports["latitude"]),
        "days.date" => of(days["date"]),
        "days.temp_max" => pointer(days["temp_max"]),
        "days.weather" => of(indices(days["weather"])),
        "measurements" => pointer(measurements),
    ]
    producers(what) = ccall(weather(:weather_address), Ptr{Cvoid}, (Ptr{Cvoid}, Cstring), w, what)
    equal = count(((what, address),) -> address != C_NULL && Ptr{Cvoid}(address) == producers(what), found)
    println("zero_copy=", equal, " of ", length(found))
    equal == length(found) || fail("zero copy: something was copied")
end

# --- figures ---

function tally(texts)
    counts = Dict{String,Int}()
    for text in skipmissing(texts)
        counts[text] = get(counts, text, 0) + 1
    end
    return collect(counts)
end

print_tallies(key, tallies) = println(key, "=", join((string(text, ":", n) for (text, n) in tallies), ","))

mean(numbers) = sum(numbers) / length(numbers)

function print_figures(airports, days)
    println("airports=", size(airports, 1))
    # The most frequent state comes first; states of equal frequency are in the order of names.
    states = sort(tally(airports["state"]); by=((state, n),) -> (-n, state))
    print_tallies("top_states", states[1:3])
    @printf("mean_temp_max=%.4f\n", mean(days["temp_max"]))
    @printf("mean_temp_min=%.4f\n", mean(days["temp_min"]))
    rain, wettest = findmax(days["precipitation"])
    @printf("wettest_day=%s %.1f\n", days["date"][wettest], rain)
    print_tallies("categories", sort(tally(days["weather"])))
end

# --- exporting ---

# A row for each month, a column for each measurement.
function monthly_means(measurements, dates)
    months = month.(dates)
    return [mean(measurements[months.==m, k]) for m in 1:12, k in axes(measurements, 2)]
end

# A matrix of Julia is column-major. It is exported with its strides, so libweather can read it without a copy.
function hand_back_means(w, measurements, dates)
    freed = Ref(0)
    means = monthly_means(measurements, dates)
    if STREAM === nothing
        tensor = Tensor(means; release=() -> freed[] += 1)
    else
        tensor = means_on_device(means, () -> freed[] += 1)
    end
    managed = export_move(tensor; stream=STREAM)
    status = ccall(weather(:weather_check_means), Cint, (Ptr{Cvoid}, Ptr{DLManagedTensorVersioned}, Int64),
        w, managed, stream_number())
    status == 0 || dlpack_release(managed)
    worked(status)
    drain()
    freed[] == 1 || fail("the means were released ", freed[], " times, not once")
    println("means_checked=yes")
end

# The copy is row-major, as every copy to a device is.
function means_on_device(means, release)
    host = Tensor(means; release=release)
    tensor = copy_to(host, DEVICE, STREAM)
    close(host)
    return tensor
end

# --- the program ---

live_buffers() = ccall(weather(:weather_live_buffers), Int64, ())

function print_ledger()
    drain()
    left = (outstanding=outstanding(), producer_outstanding=ccall(weather(:weather_outstanding), Int64, ()),
        producer_live_buffers=live_buffers())
    foreach(key -> println(key, "=", left[key]), keys(left))
    all(iszero, left) || fail("the ledger: something was not released")
    DevExchange.rooted() == 0 || fail("the ledger: Julia still keeps ", DevExchange.rooted(), " object(s) alive")
end

function main(directory)
    println("device=", device_info(DEVICE).name)
    w = open_weather(directory)
    airports, days = take_batch(w, :weather_airports), take_batch(w, :weather_days)
    measurements = take_measurements(w)
    size(measurements) == (size(days, 1), 4) || fail("the measurements have size ", size(measurements))
    DevExchange.device(measurements) == DEVICE || fail("the measurements are on another device")
    # Asks the driver whether device memory is where the tensor says.
    check_pointers(measurements)
    check_addresses(w, airports, days, measurements)
    host_airports, host_days, host_measurements = on_host(airports), on_host(days), on_host(measurements)
    print_figures(host_airports, host_days)
    hand_back_means(w, host_measurements, host_days["date"])
    foreach(close, (host_measurements, host_days, host_airports))
    # We close the producer first: our imports stay valid until we release them.
    ccall(weather(:weather_close), Cvoid, (Ptr{Cvoid},), w)
    live_buffers() == 2 || fail("libweather: its buffers were freed although they are in use")
    foreach(close, (measurements, days, airports))
    finish_releases()
    STREAM === nothing || close(STREAM)
    print_ledger()
end

main(ARGS[1])
