# Loads the extension for CUDA.jl with the stand-ins that lie here, before any package of these names.
pushfirst!(LOAD_PATH, @__DIR__)
using CUDA
isdefined(CUDA, :LIBRARY) || error("this is CUDA.jl itself, not its stand-in")
include(joinpath(@__DIR__, "..", "..", "ext", "DevExchangeCUDAExt.jl"))
