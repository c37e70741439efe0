# The structs are laid out as in C, by the table that C, Java and Rust are compared with, too.

const TABLES = normpath(joinpath(@__DIR__, "..", "..", "..", "tests"))

# devx_batch_info becomes DevxBatchInfo. The names of the standards stay.
julia_name(c) = startswith(c, "devx_") ? join(titlecase.(split(c, '_'))) : c

function same_layout(line)
    words = split(line)
    if length(words) == 5 && words[2] == "size" && words[4] == "align"
        T = getfield(DX, Symbol(julia_name(words[1])))
        isbitstype(T) || return false
        found = (sizeof(T), Base.datatype_alignment(T))
        wanted = parse.(Int, (words[3], words[5]))
    else
        length(words) == 3 && words[2] == "offset" || return false
        owner, field = split(words[1], '.')
        T = getfield(DX, Symbol(julia_name(owner)))
        found, wanted = Int(fieldoffset(T, Base.fieldindex(T, Symbol(field)))), parse(Int, words[3])
    end
    found == wanted || println(line, ": ", found, " here")
    return found == wanted
end

# Each struct has as many fields as in C.
function same_fields(lines)
    fields = Dict{String,Int}()
    for line in lines
        occursin(" offset ", line) && (owner = String(split(line, '.')[1]); fields[owner] = get(fields, owner, 0) + 1)
    end
    return all(p -> fieldcount(getfield(DX, Symbol(julia_name(p.first)))) == p.second, collect(fields))
end

function same_constant(line)
    name, value = match(r"^(\w+) value (.*)$", line).captures
    # Julia does not have the constants that are texts.
    startswith(value, '"') && return true
    found = getfield(DX, Symbol(name))
    return found == parse(Int, value)
end

@testset "records" begin
    if isfile(joinpath(TABLES, "layout.txt"))
        lines = filter(!isempty, readlines(joinpath(TABLES, "layout.txt")))
        @test length(lines) > 100
        for line in lines
            @test same_layout(line)
        end
        @test same_fields(lines)
        for line in filter(!isempty, readlines(joinpath(TABLES, "constants.txt")))
            @test same_constant(line)
        end
    else
        # The package is not in a checkout of the repository.
        @test_skip isfile("tests/layout.txt")
    end
    # Every exported name has documentation.
    documented = keys(Base.Docs.meta(DX))
    for name in names(DX)
        @test Base.Docs.Binding(DX, name) in documented
    end
    @test ArrowArray() == ArrowArray(0, 0, 0, 0, 0, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL)
    @test ArrowSchema().release == C_NULL && ArrowDeviceArray().array.release == C_NULL
    @test DX.status_name.((0, DX.DEVX_PANIC, 4711, big(2)^32)) == ("DEVX_OK", "DEVX_PANIC", "DEVX_?", "DEVX_?")
    @test isfile(DX.library_path())
    @test occursin("version = \"$(DX.PACKAGE_VERSION)\"\n", read(joinpath(@__DIR__, "..", "Project.toml"), String))
    error = DevExchangeError(DX.DEVX_DRIVER, 700, "it failed")
    @test sprint(showerror, error) == "DevExchangeError: it failed (DEVX_DRIVER, 26, driver code 700)"
    @test DX.dtype_name.((Float32, ComplexF64, Bool)) == ("float32", "complex128", "bool")
    @test DX.dtype_name(NTuple{4,Float32}) == "float32x4"
    @test DX.device_name.((DX.CPU, DX.cuda(1), DLDevice(99, 2))) == ("cpu:0", "cuda:1", "device type 99:2")
    @test refused(() -> DX.dtype_name(DLDataType(99, 8, 1)), DX.DEVX_INVALID_DTYPE, "dtype.code", "99")
end
