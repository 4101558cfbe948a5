"""Networks over several processes, each with some of the layers: sequences are passed on in chunks of time.

purpose                                              class or function        file
training and inference over the processes            TimePipeline             pipeline.py
a process's layers, given a chunk of time at a call  Chunk                    chunks.py
a loss of whole sequences, over chunks               WholeLoss                chunks.py
"""

ERROR_CODE = "NW8201"
