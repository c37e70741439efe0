# Failures: one exception type, and the one place where a status becomes an exception.

"""
    DevExchangeError(status, driver_code, message)
    DevExchangeError(status, message)

The reason why a call did nothing. `status` is a number (`DevExchange.DEVX_...`, as in the C API), `driver_code` is that
of the failed call of the device driver or 0, and `message` names the field, its value and what was expected. Anything
that the call was meant to take still belongs to the caller. The set of statuses is open.

See also [`status_name`](@ref).
"""
struct DevExchangeError <: Exception
    status::DevxStatus
    driver_code::Int32
    message::String
end

DevExchangeError(status::Integer, message::AbstractString) = DevExchangeError(status, 0, message)

function Base.showerror(io::IO, e::DevExchangeError)
    print(io, "DevExchangeError: ", e.message, " (", status_name(e.status), ", ", e.status)
    e.driver_code == 0 || print(io, ", driver code ", e.driver_code)
    print(io, ')')
end

"""
    status_name(status) -> String

Returns the name of a status, for example `"DEVX_INVALID_SHAPE"`; `"DEVX_?"` for a number without a meaning.
"""
function status_name(status::Integer)
    typemin(DevxStatus) <= status <= typemax(DevxStatus) || return "DEVX_?"
    return unsafe_string(ccall(devx_status_name[], Ptr{UInt8}, (DevxStatus,), status))
end

# The error record of a failed call as an exception. If the failure is an interrupt of Julia code that the call ran, the
# exception is an interrupt, too.
@noinline function error_of(status::DevxStatus, record::Ptr{DevxError})
    message = unsafe_string(field_address(record, :message))
    status == DEVX_CALLBACK && was_interrupted(message) && return InterruptException()
    # What the library says where a call has the keyword `copy`, and nowhere else.
    status == DEVX_COPY_REQUIRED && endswith(message, "which was not allowed") && (message *= "; `copy=:if_needed` allows it")
    code = unsafe_load(Ptr{Int32}(field_address(record, :driver_code)))
    return DevExchangeError(status, code, message)
end

# A function of its own: up to Julia 1.10, a block that ends with `throw` is not optimised, and the record that it refers to
# would be allocated by each call.
@noinline throw_error_of(status::DevxStatus, record::Ptr{DevxError}) = throw(error_of(status, record))

# `@checked devx_tensor_share(handle::Handle, out::Ptr{Ptr{Cvoid}})` calls a function of the C API and throws unless the
# status is `DEVX_OK`. The last argument of the function, the error record, is added here. The record is made for each
# call: another task could overwrite a shared one before it is read. It is on the stack, because Julia functions only
# get its address; so are arguments that are `Ref`s, unless the caller passes them to a closure.
#
# One argument can be a `Handle`, whose address is passed and stays valid during the call (see `enter`). All arguments
# are converted first, so that nothing throws between `enter` and `leave`: a `Cstring` is made by `ctext`, and what C
# calls back here catches its own exceptions.
macro checked(call)
    return checked(call, call -> :(status = $call))
end

# Like `@checked`, for a call that waits for another process. The garbage collector, which stops all of Julia's threads, need
# not wait for this thread meanwhile; so the call must not lead to any Julia code, nor to a foreign release, which may be
# Julia code. Interrupts are deferred until the handle is left: Julia throws them where the thread is told to stop again.
macro checked_while_waiting(call)
    around(call) = quote
        before = ccall(:jl_gc_safe_enter, Int8, ())
        status = $call
        ccall(:jl_gc_safe_leave, Cvoid, (Int8,), before)
    end
    return checked(call, around, :(Base.sigatomic_begin()), :(Base.sigatomic_end()))
end

function checked(call, around, first=nothing, last=nothing)
    Meta.isexpr(call, :call) || error("@checked wants a call")
    name, arguments = call.args[1], call.args[2:end]
    all(a -> Meta.isexpr(a, :(::), 2), arguments) || error("@checked wants a type for each argument")
    count(a -> a.args[2] === :Handle, arguments) <= 1 || error("@checked takes one Handle")
    prepare, types, values, before, after = [], [], [], [], []
    for argument in arguments
        value, type = argument.args
        x = gensym("argument")
        if type === :Handle
            address = gensym("address")
            push!(prepare, :($x = $(esc(value))))
            push!(before, :($address = enter($x)))
            push!(after, :(leave($x)))
            push!(types, :(Ptr{Cvoid}))
            push!(values, address)
        else
            push!(prepare, :($x = to_c($(esc(type)), $(esc(value)), $(string(value)))))
            push!(types, esc(type))
            push!(values, x)
        end
    end
    return quote
        record = Ref{DevxError}()
        $(prepare...)
        $first
        $(before...)
        $(around(:(ccall($name[], DevxStatus, ($(types...), Ptr{DevxError}), $(values...), record))))
        $(after...)
        $last
        if status != DEVX_OK
            GC.@preserve record throw_error_of(status, Base.unsafe_convert(Ptr{DevxError}, record))
        end
        nothing
    end
end

# Converts an argument for C; an error calls it `what`.
@inline to_c(::Type{T}, x, what) where {T} = Base.cconvert(T, x)
@inline to_c(::Type{I}, x::Integer, what) where {I<:Integer} = number(I, x, what)

# Converts a number to another type, which may not have room for it.
@inline number(::Type{I}, x::I, what) where {I<:Integer} = x
@inline number(::Type{I}, x::Integer, what) where {I<:Integer} =
    typemin(I) <= x <= typemax(I) ? I(x) : throw(out_of_range(I, x, what))

@noinline out_of_range(I, x, what) =
    DevExchangeError(DEVX_OUT_OF_RANGE, "$what is $x: it must be between $(typemin(I)) and $(typemax(I))")

# Converts a time to wait, in seconds, to that of C: negative is as long as it takes, and so is a time beyond 30 years.
function nanoseconds(seconds::Real, what)
    seconds >= 0 ||
        throw(DevExchangeError(DEVX_INVALID_ARGUMENT, "$what is $seconds s: it must not be negative"))
    return seconds < 1e9 ? round(Int64, 1e9 * seconds) : Int64(-1)
end

# Returns a name that `write` puts into a buffer, which is large enough for any name.
function named(write)
    name = Vector{UInt8}(undef, 48)
    GC.@preserve name begin
        write(pointer(name), length(name))
        return unsafe_string(pointer(name))
    end
end

# Returns a text of any length: `write(room, capacity, length)` writes as much as there is room for, and its full
# length.
function written(write)
    room, bytes = Vector{UInt8}(undef, 256), Ref{Csize_t}(0)
    while true
        write(room, length(room), bytes)
        bytes[] < length(room) && return String(resize!(room, bytes[]))
        resize!(room, bytes[] + 1)
    end
end

# Converts a text for C: with one NUL at its end and none within.
function ctext(text::AbstractString, what)
    s = String(text)
    0x00 in codeunits(s) && throw(DevExchangeError(DEVX_INVALID_TEXT, "$what $(repr(s)) has a NUL in it"))
    return s
end
