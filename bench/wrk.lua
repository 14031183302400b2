-- Arguments: the method; to create, a prefix of all SKUs of this run, and the body with marks for it and for a number.
-- Prints: requests, microseconds, median and 99th percentile of their times in microseconds; failures
-- to connect, to read, to write, by status, by time-out.

local number, prefix = 0, nil

function init(arguments)
   wrk.method, prefix = arguments[1], arguments[2]
   wrk.body = arguments[3]
   if prefix then
      function request()
         number = number + 1
         return wrk.format(nil, nil, nil, string.format(wrk.body, prefix, number))
      end
   else
      local same = wrk.format()
      function request()
         return same
      end
   end
end

function done(summary, latency)
   local errors = summary.errors
   print(string.format("BENCH %d %d %d %d %d %d %d %d %d", summary.requests, summary.duration, latency:percentile(50),
      latency:percentile(99), errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
