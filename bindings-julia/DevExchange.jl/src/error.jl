# What went wrong: one exception type, and the one place where a status becomes one.

"""
    DevExchangeError(status, driver_code, message)
    DevExchangeError(status, message)

The reason why a call did nothing: `status` is a number (`DevExchange.DEVX_...`, the numbers of the C API),
`driver_code` that of the failed device driver call or 0, and `message` names the field, its value and what was
expected. Whatever the call was to take is still the caller's. The set of statuses is open.

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

The name of a status, for example `"DEVX_INVALID_SHAPE"`; `"DEVX_?"` for a number without a meaning.
"""
status_name(status::Integer) = unsafe_string(ccall(devx_status_name[], Ptr{UInt8}, (DevxStatus,), status))

# The one check: turns what a call returned and wrote into an exception.
function check(status::DevxStatus, record::Ref{DevxError})
    status == DEVX_OK && return nothing
    GC.@preserve record begin
        p = Base.unsafe_convert(Ptr{DevxError}, record)
        code = unsafe_load(Ptr{Int32}(field_address(p, :driver_code)))
        message = unsafe_string(field_address(p, :message))
    end
    throw(DevExchangeError(status, code, message))
end

# `@checked devx_tensor_share(handle::Ptr{Cvoid}, out::Ptr{Ptr{Cvoid}})` calls a function of the C API, whose last
# argument, the error record, is added here, and throws unless the status is `DEVX_OK`. The record is made for the call:
# a shared one could be overwritten by another task before it is read.
macro checked(call)
    Meta.isexpr(call, :call) || error("@checked wants a call")
    name, arguments = call.args[1], call.args[2:end]
    all(a -> Meta.isexpr(a, :(::), 2), arguments) || error("@checked wants a type for each argument")
    values, types = [a.args[1] for a in arguments], [a.args[2] for a in arguments]
    return quote
        record = Ref{DevxError}()
        check(ccall($name[], DevxStatus, ($(esc.(types)...), Ptr{DevxError}), $(esc.(values)...), record), record)
    end
end

# A text for C: one NUL at its end and none within.
function ctext(text::AbstractString, what)
    s = String(text)
    0x00 in codeunits(s) && throw(DevExchangeError(DEVX_INVALID_TEXT, "$what $(repr(s)) has a NUL in it"))
    return s
end
