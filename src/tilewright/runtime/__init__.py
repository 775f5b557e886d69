"""Devices, memory, caches, and the execution of compiled programs.

a program     host.py (kernels and steps), steps.py (what steps do), executable.py, executor.py, scope.py, rounds.py
              (loops), result_arrays.py, index_errors.py; versions.py and thresholds.py (which version runs)
again         recording.py, bound_plan.py, bound_plans.py, flat_plan.py, liveness.py (a run, repeated without deciding
              anything again); program_entry.py, cpu_entry*.py, entry_plan.py, entry_steps.py, entry_memory.py (native);
              plan_record.py, bound_record.py, stored_program.py (on the disk)
the CPU       cpu_jit.py, llvm_library.py, elf_image.py, native_image.py, native_code.py; cpu_device.py,
              known_processor.py; cpu_pool.py, cpu_driver.py, cpu_worker.py, cpu_fetch.py, scheduling.py;
              thread_count.py, thread_limits.py
devices       protocol.py, backends.py, opencl_device.py, cuda_device.py with cuda_context.py, devices.py, *_probe.py,
              speeds.py; turned.py and turning.py (arrays in the order that a GPU reads)
memory        memory.py, recycling.py, collecting.py (cycles of dead objects)
caches        cache.py, fingerprint.py, digest.py, json_reader.py
other         errors.py, messages.py (values in them), environment.py
"""
