# What broadcasting takes as one value, like a number: `column .== decimal`, `used_on.(tensors, stream)`,
# `import_tensor.(client, names)`. Without this it would try to iterate.
Base.broadcastable(x::Union{Allocation,AsyncWriter,Batch,DLDataType,DLDevice,DayTime,Decimal,DeviceStream,Field,Int256,
    IpcClient,IpcServer,MemoryManager,MonthDayNano,RawElement,Schema}) = Ref(x)
