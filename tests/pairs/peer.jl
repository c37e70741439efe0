# The Julia program of pairs.py.
using DevExchange
const DX = DevExchange

const cuda = length(ARGS) > 1
const stream = cuda ? DeviceStream(DX.cuda()) : nothing

table(n) = Batch((
    n = view(Union{Int,Missing}[9, 1, missing, 3], 2:n+1),
    s = Union{String,Missing}["a", missing, "Zürich"][1:n],
    l = Union{Vector{Int},Missing}[[1, 2], Int[], missing][1:n],
    d = DictionaryVector(["x", "y", "x"][1:n]),
    st = [(a=i, b=i - 0.5) for i in 1:n],
    m = Union{Bool,Missing}[true, missing, false][1:n],
))

code(::Type{Int32}) = "032"
code(::Type{Float64}) = "264"
number(x) = isinteger(x) ? string(Int(x)) : string(x)

function of_tensor((name, t))
    values = DX.device(t) == DX.CPU ? collect(t) : read!(zeros(size(t)), t, stream)
    # All peers list the elements in row-major order.
    listed = join(map(number, vec(permutedims(values))), ' ')
    shape = join(size(t), 'x') * (isreadonly(t) ? " read-only" : "")
    return string(name, ' ', code(eltype(t)), ' ', shape, " [", listed, "]; ")
end

shown(::Missing) = "null"
shown(x::AbstractString) = repr(String(x))
shown(x::Number) = string(x)
shown(x::AbstractVector) = string('[', join(map(shown, x), ", "), ']')
shown(x::NamedTuple) = string('{', join(("\"$name\": $(shown(value))" for (name, value) in pairs(x)), ", "), '}')

of_column(name, column) = " $name:" * join(map(shown, column), ',')
of_batch((name, b)) = string(name, ' ', size(b, 1), (of_column(key, b[key]) for key in keys(b))..., "; ")

const held = Dict{String,Any}()

function import_all(address)
    client = IpcClient(address)
    names = cuda ? ("shared", "view", "copied", "none", "device") : ("shared", "view", "copied", "none")
    tensors = [name => import_tensor(client, name) for name in names]
    batches = [name => import_batch(client, name) for name in ("rows", "no rows")]
    close(client)
    held[address] = (tensors, batches)
    return string(map(of_tensor, tensors)..., map(of_batch, batches)...)
end

function release()
    for (tensors, batches) in values(held)
        cuda && used_on(last(tensors[end]), stream)
        foreach(close ∘ last, tensors)
        foreach(close ∘ last, batches)
    end
    empty!(held)
    return "released"
end

count_outstanding() = (GC.gc(false); drain(); outstanding())

function answer(shared, server, line)
    verb, address = split(line * ' ', ' ')[1:2]
    verb == "import" && return import_all(String(address))
    verb == "write" && (last(held[address][1][1])[1, 1] += 1; return "written")
    verb == "look" && return string(shared[1, 1], ' ', leases(server), ' ', count_outstanding())
    verb == "release" && return release()
    error("what is $line")
end

function main()
    server = IpcServer(ARGS[1])
    shared = allocate_shared(Int32, (2, 3))
    shared .= [1 2 3; 4 5 6]
    offer(server, "shared", shared)
    flat = unsafe_wrap(Array, Ptr{Int32}(pointer(shared)), 6)
    offering(name, x; keywords...) = (offer(server, name, x; keywords...); close(x))
    offering("view", Tensor(view(flat, 2:2:4); readonly=true))
    offering("copied", Tensor([1.5, 2.5]); copy=:if_needed)
    offering("none", allocate_shared(Int32, (0, 3)))
    offering("rows", table(3); copy=:if_needed)
    offering("no rows", table(0); copy=:if_needed)
    if cuda
        made = allocate(Float64, 2, DX.cuda(); stream=stream)
        write!(made, [1.5, 2.5], stream)
        produced_on(made, stream)
        offering("device", made; copy=:if_needed)
    end
    drain()
    println("ready")
    foreach(line -> println(answer(shared, server, line)), eachline())
    close(shared)
    close(server)
    timedwait(() -> count_outstanding() == 0, 120.0; pollint=0.001)
    println("outstanding ", outstanding())
end

main()
