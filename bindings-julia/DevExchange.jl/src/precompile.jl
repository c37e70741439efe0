# Compiles with the package what the first exchange of most programs needs. Julia keeps the machine code from 1.9 on;
# before that it keeps the results of inference. Nothing is run here, because nothing can be made while a package is
# precompiled. More of this would make every program load longer.

for T in (Int32, Int64, Float32, Float64), N in 1:2
    precompile(Tensor, (Array{T,N},))
    precompile(export_share, (Tensor{T,N},))
    precompile(close, (Tensor{T,N},))
end
precompile(import_dlpack, (Ptr{DLManagedTensorVersioned},))
precompile(dlpack_release, (Ptr{DLManagedTensorVersioned},))

for T in (Int32, Int64, Float32, Float64, Bool, String, Date, DateTime), S in (T, Union{T,Missing})
    precompile(lay!, (Vector{Node}, String, String, Vector{S}))
end
precompile(batch_of, (Vector{Any}, Nothing, Tuple{}, Nothing))
precompile(batch_over, (Schema, Vector{Node}, DLDevice, Nothing, Ptr{Cvoid}))
precompile(Schema, (Vector{Field},))
precompile(Column, (Batch, DevxColumn))
precompile(columns, (Batch,))
for k in (Int, Symbol, String)
    precompile(getindex, (Batch, k))
end
for array in (ArrowArray, ArrowDeviceArray), f in (export_share, export_move)
    precompile(f, (Batch, Base.RefValue{array}, Base.RefValue{ArrowSchema}))
    precompile(f, (Batch, Base.RefValue{array}))
end
precompile(import_arrow, (Base.RefValue{ArrowArray}, Base.RefValue{ArrowSchema}))
precompile(import_arrow_device, (Base.RefValue{ArrowDeviceArray}, Base.RefValue{ArrowSchema}))
precompile(close, (Batch,))

for source in (Function, Vector{Batch})
    precompile(BatchStream, (Schema, source))
    precompile(BatchStream, (source, Schema))
end
precompile(Tuple{Pulled})
precompile(answer_call, ())
precompile(refuse_call, ())
precompile(reply, (Pulled, Ptr{Call}))
precompile(reply, (ManagerFunctions, Ptr{Call}))
precompile(error_of, (DevxStatus, Ptr{DevxError}))
precompile(deliver_all, ())
for struct_of_stream in (ArrowArrayStream, ArrowDeviceArrayStream)
    precompile(export_move, (BatchStream, Base.RefValue{struct_of_stream}))
end
precompile(import_arrow, (Base.RefValue{ArrowArrayStream},))
precompile(import_arrow_device, (Base.RefValue{ArrowDeviceArrayStream},))
precompile(iterate, (BatchStream,))
precompile(iterate, (BatchStream, Nothing))
precompile(schema, (BatchStream,))
precompile(AsyncReader, ())
precompile(handler, (AsyncReader,))
precompile(next!, (AsyncReader,))
precompile(iterate, (AsyncReader, Nothing))
