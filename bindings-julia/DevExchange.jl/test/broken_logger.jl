# A logger that throws.
struct BrokenLogger <: Base.CoreLogging.AbstractLogger end
Base.CoreLogging.min_enabled_level(::BrokenLogger) = Base.CoreLogging.BelowMinLevel
Base.CoreLogging.shouldlog(::BrokenLogger, level, origin, group, id) = true
Base.CoreLogging.catch_exceptions(::BrokenLogger) = false
Base.CoreLogging.handle_message(::BrokenLogger, args...; options...) = error("there is no log")
