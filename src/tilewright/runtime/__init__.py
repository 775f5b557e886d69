"""Devices, memory, caches, and the execution of compiled programs.

a program     host.py (kernels and steps), steps.py (what steps do), executable.py, executor.py, scope.py
again         recording.py, bound_plan.py, flat_plan.py, liveness.py (a run, repeated without deciding anything
              again); program_entry.py, cpu_entry*.py (native); plan_record.py (on the disk)
the CPU       cpu_jit.py, elf_image.py, native_image.py, native_code.py; cpu_device.py;
              cpu_pool.py, cpu_driver.py, cpu_worker.py, cpu_fetch.py, scheduling.py; thread_count.py, thread_limits.py,
              forking.py
devices       protocol.py, backends.py, opencl_device.py, cuda_device.py, devices.py, *_probe.py, speeds.py;
              turned.py and turning.py (arrays in the order that a GPU reads)
memory        memory.py, recycling.py
caches        cache.py, fingerprint.py, digest.py
other         errors.py, messages.py (values in them), environment.py
"""
