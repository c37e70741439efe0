# Loads the stand-ins in this directory, before any package of the same name, and with them the extension for CUDA.jl.
pushfirst!(LOAD_PATH, @__DIR__)
using CUDA
isdefined(CUDA, :LIBRARY) || error("this is CUDA.jl itself, not its stand-in")
include(joinpath(@__DIR__, "..", "..", "ext", "DevExchangeCUDAExt.jl"))
