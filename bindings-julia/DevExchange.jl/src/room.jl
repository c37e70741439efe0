# How large the buffers of an array have to be, for those that know how large they are.

# How many bytes a buffer has; nothing if it does not know that, or cannot be one.
room(_) = nothing
room(bits::BitVector) = cld(length(bits), 8)
room(array::AbstractArray{T}) where {T} = isbitstype(T) ? length(array) * sizeof(T) : nothing

# Refuses arrays that are too short for what their node says. Wrong numbers of nodes or buffers and wrong lengths are left
# to the library.
function check_rooms(schema::Schema, nodes::Vector{Node})
    all(node -> all(buffer -> room(buffer) === nothing, node.buffers), nodes) && return nothing
    described, k = Ref(ArrowSchema()), Ref(0)
    export_share(schema, described)
    try
        GC.@preserve described each_field(described[]) do s
            (k[] += 1) <= length(nodes) && check_rooms(unsafe_string(s.format), s.name, nodes[k[]])
        end
    finally
        arrow_release(described)
    end
    return nothing
end

# In the order of nodes: depth first, the children of a field before its dictionary.
function each_field(f, s::ArrowSchema)
    f(s)
    foreach(k -> each_field(f, unsafe_load(unsafe_load(s.children, k))), 1:s.n_children)
    s.dictionary == C_NULL || each_field(f, unsafe_load(s.dictionary))
    return nothing
end

function check_rooms(format::String, name::Ptr{UInt8}, node::Node)
    stop = Int128(node.length) + node.offset
    for (k, buffer) in enumerate(node.buffers)
        bytes = room(buffer)
        bytes === nothing && continue
        needed = bytes_for(format, stop, k - 1, length(node.buffers))
        bytes < needed && throw(DevExchangeError(DEVX_INVALID_BUFFERS,
            "array $(repr(name == C_NULL ? "" : unsafe_string(name))): buffers[$(k - 1)] has $bytes bytes: " *
            "offset and length $stop of format $(repr(format)) take $needed"))
    end
    return nothing
end

# How many bytes the buffer at `index`, from 0 on, of `count` has at least for elements up to `stop`. Where other buffers
# say how many there are it is 0.
function bytes_for(format, stop::Int128, index, count)
    offsets(width) = index == 1 && stop > 0 ? (stop + 1) * width : Int128(0)
    startswith(format, "+u") && return stop * (index == 0 ? 1 : 4)
    format in ("n", "+r") && return Int128(0)
    index == 0 && return cld(stop, 8)
    format in ("u", "z", "+l", "+m") && return offsets(4)
    format in ("U", "Z", "+L") && return offsets(8)
    format in ("+vl", "+vL") && return stop * (format == "+vl" ? 4 : 8)
    if format in ("vu", "vz")
        # Between the views and the sizes there is any number of data buffers, each of which has a size.
        count < 3 && return Int128(0)
        return index == 1 ? 16 * stop : index == count - 1 && stop > 0 ? Int128(8) * (count - 3) : Int128(0)
    end
    return index == 1 ? cld(stop * value_bits(format), 8) : Int128(0)
end

# Bits of each value of a format without offsets; 0 if it has none of its own.
function value_bits(format)
    number(k) = (parts = split(SubString(format, 3), ','); k <= length(parts) ? tryparse(Int, parts[k]) : nothing)
    format == "b" && return 1
    format in ("c", "C") && return 8
    format in ("s", "S", "e") && return 16
    format in ("i", "I", "f", "tdD", "tts", "ttm", "tiM") && return 32
    format == "tin" && return 128
    (format in ("l", "L", "g") || startswith(format, 't')) && return 64
    startswith(format, "d:") && return something(number(3), 128)
    startswith(format, "w:") && return 8 * something(number(1), 0)
    return 0
end
